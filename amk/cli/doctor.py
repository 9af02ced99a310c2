"""``amk doctor``: is this machine ready, and if not, what mends it?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Final

import typer
from rich.text import Text

from amk.cli.checks import Check, all_checks
from amk.cli.output import OUT, print_json
from amk.errors import EXIT_FAILED, EXIT_PASS

_STYLE: Final = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Check versions, compilers, devices and folders; exit 1 if anything would stop amk from working."""
    checks = all_checks()
    failed = any(check.status == "fail" for check in checks)
    if as_json:
        print_json({"passed": not failed, "checks": [asdict(check) for check in checks]})
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            _print_check(check, width)
    raise typer.Exit(EXIT_FAILED if failed else EXIT_PASS)


def _print_check(check: Check, width: int) -> None:
    OUT.print(Text.assemble((f"{check.status:4}", _STYLE[check.status]), f"  {check.name:{width}}  {check.detail}"))
    if check.mend:
        OUT.print(Text(f"{'':{width + 8}}mend: {check.mend}", style="dim"))
