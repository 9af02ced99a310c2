"""amk supported: the model families that amk decodes, and how far each was seen to run on each arch."""

from __future__ import annotations

from typing import Final

from rich.table import Table

from amk.cli.options import Json
from amk.cli.output import OUT, print_json
from amk.frontend.supported import ARCHS, load_supported

_WORDS: Final = {"run": "run", "checked": "built and host-checked, not run"}


def supported(as_json: Json = False) -> int:
    """Show the families and their variants that tests decode as HuggingFace does, and on which arch."""
    families = load_supported()
    if as_json:
        print_json({"families": families})
        return 0
    table = Table(box=None, pad_edge=False)
    for column in ("family", "variants", *ARCHS):
        table.add_column(column)
    for family in families:
        table.add_row(
            family["family"], "; ".join(family["variants"]), *(_WORDS[family["archs"][arch]] for arch in ARCHS)
        )
    OUT.print(table)
    OUT.print("Anything else is refused by name before compiling.")
    return 0
