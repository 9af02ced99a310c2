"""amk bench: time a model beside PyTorch on the same weights, or measure the machine's own limits."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    Revision,
    open_model,
)
from amk.cli.output import ERR, OUT, print_json
from amk.errors import EXIT_FAILED, BadOptionError

if TYPE_CHECKING:
    from amk.measure.result import BenchResult, Limits, Row

LIMITS = "limits"


def bench(
    model: Annotated[str, typer.Argument(help=f"As for compile; or {LIMITS}: only what the machine itself can do.")],
    context: Annotated[
        str, typer.Option(help="Positions before the first token that is timed, comma-separated.")
    ] = "128",
    against: Annotated[str, typer.Option(help="eager, cublas-graph, compile-graph; comma-separated.")] = "",
    rounds: Annotated[int, typer.Option(min=1, help="Samples of each arm, which take turns.")] = 5,
    tokens: Annotated[int, typer.Option(min=1, help="Of a sample.")] = 64,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write every sample here, as JSON.")] = None,
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
    """Time MODEL; exit 1 if its tokens are not HuggingFace's."""
    from amk.measure.limits import limits as measured
    from amk.pipeline import choose_target

    if model == LIMITS:
        found = measured(choose_target(arch=arch, target=target, device=None))
        if as_json:
            print_json(msgspec.to_builtins(found))
        else:
            _print_limits(found)
        return 0
    contexts, arms = _numbers(context), _arms(against)
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
    from amk.measure.bench import bench as run

    with ERR.status("measuring the machine") as status:
        limits = None if compiled.arch == "cpu" else measured(compiled.schedule.target)
        result = run(
            compiled,
            contexts=contexts,
            against=arms,
            rounds=rounds,
            tokens=tokens,
            limits=limits,
            note=status.update,
        )
    if out is not None:
        result.write(out)
    if as_json:
        print_json(msgspec.to_builtins(result))
    else:
        OUT.print(compiled.certificate.one_line())
        _print_result(result)
        if out is not None:
            OUT.print(f"samples: {out}")
    return 0 if result.parity.verdict == "pass" else EXIT_FAILED


def _arms(words: str) -> list[str]:
    from amk.measure.arms import TORCH_ARMS

    found = [word for word in words.split(",") if word]
    for name in found:
        if name not in TORCH_ARMS:
            raise BadOptionError(
                option="against", value=name, why="there is no such arm", fix=f"use some of {', '.join(TORCH_ARMS)}"
            )
    return found


def _numbers(words: str) -> list[int]:
    try:
        found = [int(word) for word in words.split(",")]
    except ValueError as error:
        raise BadOptionError(
            option="context", value=words, why="it is no list of numbers", fix="use for example 128,2048"
        ) from error
    if min(found) < 1:
        raise BadOptionError(option="context", value=words, why="a prompt has a token", fix="use 1 or more")
    return found


def _print_result(result: BenchResult) -> None:
    table = Table("context", "arm", "us a token", "range", "TB/s", "of read rate", "launches", "prompt, ms")
    for row in result.rows:
        table.add_row(str(row.context), row.arm, *_cells(result, row))
    OUT.print(table)
    if result.limits is not None:
        _print_limits(result.limits)
    parity = result.parity
    r = "no number" if parity.logit_range_max is None else f"{parity.logit_range_max:.2g}"
    OUT.print(
        f"parity with HuggingFace float32: {parity.verdict}, {parity.tokens} tokens, {parity.ties} ties, r {r} "
        f"(bound {parity.logit_range_bound:g})"
    )


def _cells(result: BenchResult, row: Row) -> list[str]:
    if not result.times(row):
        return [row.failure or "withheld: its tokens are not HuggingFace's"]
    rate = result.bytes_per_s(row)
    return [
        f"{row.median:.1f}",
        f"{min(row.us_per_token):.1f}-{max(row.us_per_token):.1f}",
        f"{rate / 1e12:.2f}",
        f"{rate / result.limits.read_bytes_per_s:.0%}" if result.limits else "",
        f"{row.launches} of {row.tokens}" if row.launches else "",
        f"{statistics.median(row.prompt_ms):.1f}" if row.prompt_ms else "",
    ]


def _print_limits(found: Limits) -> None:
    OUT.print(
        f"{found.target}, {found.workers} blocks: reads {found.read_bytes_per_s / 1e12:.3f} TB/s; a hop takes "
        f"{found.hop_us:.2f} us, and {found.hop_streaming_us:.2f} us while "
        f"{found.streaming_bytes_per_s / 1e12:.3f} TB/s are read"
    )
