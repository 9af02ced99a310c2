"""amk compile: a checkpoint to a schedule that is proved safe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

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
from amk.errors import BadOptionError
from amk.settings import write_atomically


def compile_model(
    model: Model,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="FILE.amk to load again, or FILE.json for the schedule alone.")
    ] = None,
    arch: Arch = None,
    target: Chip = None,
    dtype: Dtype = "bf16",
    group_size: GroupSize = 0,
    kv_dtype: KvDtype = "float32",
    max_context: MaxContext = None,
    revision: Revision = None,
    local_files_only: LocalFilesOnly = False,
    as_json: Json = False,
) -> None:
    """Compile MODEL: recognise it, check its twin against HuggingFace, schedule it, prove the schedule safe."""
    if output is not None and output.suffix not in (".amk", ".json"):
        why = "its ending says neither an artefact nor a schedule"
        raise BadOptionError(option="output", value=str(output), why=why, fix="name it FILE.amk or FILE.json")
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
    if output is not None and output.suffix == ".amk":
        compiled.save(output)
    elif output is not None:
        write_atomically(output, compiled.schedule.to_json(), fix="choose another output path")
    report = compiled.report()
    if as_json:
        print_json({**msgspec.to_builtins(report), "output": str(output) if output else None})
        return
    OUT.print(str(report))
    if output is not None:
        OUT.print(f"{'written':<12} {output}")
