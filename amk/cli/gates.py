"""amk gates: hold a compiled model to the gates that any kernel is judged by."""

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
from amk.errors import EXIT_FAILED, EXIT_UNKNOWN
from amk.settings import write_atomically


def gates(
    model: Model,
    only: Annotated[str, typer.Option("--gates", help="Only these, as in G03,G07.")] = "",
    seed: Annotated[int, typer.Option(help="All that is random comes from it.")] = 0,
    budget_s: Annotated[float, typer.Option(min=1.0, help="For all gates together.")] = 1200.0,
    out: Annotated[Path | None, typer.Option(help="A file for the findings, as JSON.")] = None,
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
    """Judge MODEL's kernel by the twelve gates; exit 1 when one finds a violation.

    The kernel decodes in a process of its own, beside HuggingFace in bf16 in
    another; float64 says how far either is off (docs/verifier.md).
    """
    from amk.contracts.megakernel import judge_model

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
    if not as_json:
        OUT.print(compiled.origin)
        OUT.print(compiled.certificate.one_line())
    wanted = tuple(name.strip() for name in only.split(",") if name.strip())
    found = judge_model(compiled, gates=wanted, seed=seed, budget_s=budget_s)
    document = {
        "model": compiled.manifest.model,
        "source": compiled.origin,
        "certificate": msgspec.to_builtins(compiled.certificate),
        **msgspec.to_builtins(found),
    }
    if out is not None:
        text = msgspec.json.format(msgspec.json.encode(document), indent=1)
        write_atomically(out, text + b"\n", fix="choose another file for --out")
    if as_json:
        print_json(document)
    else:
        table = Table("gate", "verdict", "cases", "what was found", box=None, pad_edge=False)
        for finding in found.findings:
            table.add_row(finding.gate, finding.verdict, str(finding.cases or ""), finding.why)
        OUT.print(table)
        OUT.print(f"{found.status}{': ' + found.why if found.why else ''} ({found.seconds:.0f} s)")
    if found.status == "not judged":
        return EXIT_UNKNOWN
    return 0 if found.status == "conforms" else EXIT_FAILED
