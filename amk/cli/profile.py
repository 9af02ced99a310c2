"""amk profile: when each task of a launch runs, and where a step's time goes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from amk.cli.options import (
    Arch,
    Chip,
    Dtype,
    GroupSize,
    Json,
    KvDtype,
    LocalFilesOnly,
    MaxContext,
    Model,
    Revision,
    open_model,
)
from amk.cli.output import OUT, print_json
from amk.errors import EXIT_FAILED


def profile(
    model: Model,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write a trace for Perfetto here.")] = None,
    context: Annotated[int, typer.Option(min=1, help="Positions before the first step.")] = 128,
    tokens: Annotated[int, typer.Option(min=1, help="Steps, all of them in one launch.")] = 32,
    arch: Arch = None,
    target: Chip = None,
    dtype: Dtype = "bf16",
    group_size: GroupSize = 0,
    kv_dtype: KvDtype = "float32",
    max_context: MaxContext = None,
    revision: Revision = None,
    local_files_only: LocalFilesOnly = False,
    as_json: Json = False,
) -> int:
    """Decode MODEL with a kernel that stamps its tasks; exit 1 if stamping changes a bit."""
    from amk.measure.profile import PARTS
    from amk.measure.profile import profile as run

    compiled = open_model(
        model,
        arch=arch,
        target=target,
        dtype=dtype,
        group_size=group_size,
        kv_dtype=kv_dtype,
        max_context=max_context,
        revision=revision,
        local_files_only=local_files_only,
        progress=not as_json,
    )
    found = run(compiled, context=context, tokens=tokens)
    if out is not None:
        found.write_trace(out)
    summary = found.summary
    if as_json:
        print_json(msgspec.to_builtins(summary) | {"shares": {part: summary.share(part) for part in PARTS}})
        return EXIT_FAILED if not summary.same_bits else 0
    OUT.print(compiled.certificate.one_line())
    table = Table("hop", "a step", *(f"{part} us" for part in PARTS), "total us", title="Microseconds of a step")
    for hop in summary.hops:
        times = [f"{getattr(hop, part):.1f}" for part in (*PARTS, "total")]
        table.add_row(hop.name, str(hop.count), *times)
    OUT.print(table)
    shares = ", ".join(f"{part} {summary.share(part):.0%}" for part in PARTS)
    OUT.print(f"{shares}; at positions {context} to {context + summary.steps}")
    OUT.print(
        f"{summary.us_per_token:.1f} us a token as it ships, {summary.us_per_token_stamped:.1f} while it stamps; "
        f"{'the same bits' if summary.same_bits else 'OTHER BITS'}"
    )
    if out is not None:
        OUT.print(f"trace: {out} (open it in ui.perfetto.dev)")
    return 0 if summary.same_bits else EXIT_FAILED
