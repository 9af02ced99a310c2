"""Options that several subcommands share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from amk.ir.schedule import Schedule
    from amk.pipeline import CompiledModel

Model = Annotated[
    str, typer.Argument(help="An alias (SmolLM2-135M), a hub id, a folder, a .gguf file, or a compiled .amk file.")
]
Arch = Annotated[str | None, typer.Option(help="cpu, host, sm_80, sm_90, sm_120. Default: this GPU's, else cpu.")]
Chip = Annotated[str | None, typer.Option("--target", help="A chip: a100, h100-sxm, h200, rtx5090 ...")]
Dtype = Annotated[str, typer.Option(help="Of the weights: bf16, or w8a16: integers of eight bits.")]
GroupSize = Annotated[int, typer.Option(help="With w8a16, columns that share a scale: 64, 128, or 0 for a whole row.")]
KvDtype = Annotated[str, typer.Option(help="Of the KV cache: float32 or bfloat16.")]
MaxContext = Annotated[int | None, typer.Option(help="Positions of the KV cache. Default: the model's, at most 8192.")]
Revision = Annotated[str | None, typer.Option(help="Branch, tag or commit of a hub id.")]
LocalFilesOnly = Annotated[bool, typer.Option("--local-files-only", help="Do not use the network.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def open_model(
    model: str,
    *,
    arch: str | None,
    target: str | None,
    dtype: str,
    group_size: int,
    kv_dtype: str,
    max_context: int | None,
    revision: str | None,
    local_files_only: bool,
    progress: bool,
) -> CompiledModel:
    """The compiled model behind a command's argument: an ``.amk`` file is loaded, anything else is compiled."""
    import amk

    if model.endswith(".amk"):
        return amk.load(Path(model), progress=progress)
    return amk.compile(
        model,
        arch=arch,
        target=target,
        dtype=dtype,
        group_size=group_size,
        kv_dtype=kv_dtype,
        max_context=max_context,
        revision=revision,
        local_files_only=local_files_only,
        progress=progress,
    )


def open_schedule(path: Path) -> Schedule:
    """The schedule of a schedule file or of an ``.amk`` file; the file's own verdict is not looked at."""
    if path.suffix == ".amk":
        from amk.runtime.artefact import read_artefact

        return read_artefact(path).schedule
    from amk.ir.schedule import Schedule

    return Schedule.load(path)
