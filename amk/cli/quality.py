"""amk quality: what a weight format costs, on a text, against the checkpoint at float32."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.table import Table

from amk.cli.options import GroupSize, Json, LocalFilesOnly, Revision
from amk.cli.output import ERR, OUT, print_json
from amk.errors import EXIT_FAILED, BadOptionError
from amk.measure.text import CONTEXT, TOKENS

if TYPE_CHECKING:
    from amk.measure.quality import QualityReport
    from amk.measure.scores import Figures

FIGURES = ("perplexity", "ratio", "agree", "KL mean", "KL p99", "r p99", "r max")


def quality(
    model: Annotated[str, typer.Argument(help="An alias, a hub id, a folder, or a .gguf file.")],
    dtype: Annotated[str, typer.Option(help="Of the weights: w8a16 or bf16.")] = "w8a16",
    group_size: GroupSize = 0,
    tokens: Annotated[int, typer.Option(min=1, help="At most so many, spread evenly over the text.")] = TOKENS,
    context: Annotated[int, typer.Option(min=2, help="Tokens of a window.")] = CONTEXT,
    text: Annotated[Path | None, typer.Option(help="A text in UTF-8. Default: the bundled one, in English.")] = None,
    revision: Revision = None,
    local_files_only: LocalFilesOnly = False,
    as_json: Json = False,
) -> int:
    """Measure what a weight format costs MODEL; exit 1 if its perplexity is not within 0.5 % of float32's.

    Every arm is MODEL's HuggingFace class on this processor: float32 with the
    weights as they are stored, HuggingFace's bf16, and float32 with the weights
    as amk packs them. That the compiled kernel computes what amk's arms do is
    what amk parity shows.
    """
    if model.endswith(".amk"):
        why, fix = "a compiled file holds a schedule and no weights", "pass the checkpoint that it was compiled from"
        raise BadOptionError(option="model", value=model, why=why, fix=fix)
    with ERR.status("starting") as status:
        from amk.frontend.checkpoint import resolve
        from amk.measure.quality import quality as measure

        report = measure(
            resolve(model, revision=revision, local_files_only=local_files_only),
            dtype=dtype,
            group_size=group_size,
            tokens=tokens,
            context=context,
            text=text,
            note=status.update,
        )
    if as_json:
        print_json(msgspec.to_builtins(report))
    else:
        _print_report(report)
    return EXIT_FAILED if report.verdict == "fail" else 0


def _print_report(report: QualityReport) -> None:
    OUT.print(report.source)
    OUT.print(f"text: {report.text.name}; {report.text.bytes:,} bytes, sha256 {report.text.sha256}")
    OUT.print(
        f"{report.tokens:,} tokens in {report.tokens // report.context} windows of {report.context}, "
        f"spread over the text's {report.text_tokens:,}"
    )
    _print_table("arm", {arm.arm: arm.whole for arm in report.arms})
    judged = report.arms[-1]
    OUT.print(f"{judged.arm} by slices of the text:")
    names = [f"{part.first}-{part.end - 1}" for part in report.slices]
    _print_table("tokens", dict(zip(names, judged.slices, strict=True)))
    OUT.print(_verdict(report))


def _print_table(of: str, rows: dict[str, Figures]) -> None:
    table = Table(of, *FIGURES, box=None, pad_edge=False, collapse_padding=True)
    for name, found in rows.items():
        table.add_row(name, *_cells(found))
    OUT.print(table)


def _cells(found: Figures) -> list[str]:
    return [
        f"{found.perplexity:.4f}",
        f"{found.perplexity_ratio:.4f}" + ("" if found.ratio_error is None else f" ±{found.ratio_error:.4f}"),
        f"{found.agreement:.2%}",
        f"{found.kl_mean:.2g}",
        f"{found.kl_p99:.2g}",
        f"{found.logit_range_p99:.2g}",
        f"{found.logit_range_max:.2g}",
    ]


def _verdict(report: QualityReport) -> str:
    if report.verdict == "fail":
        return f"FAIL: {report.failure}"
    judged = report.arms[-1]
    return (
        f"PASS: the perplexity of {judged.arm} is {judged.whole.perplexity_ratio:.4f} times that of "
        f"{report.arms[0].arm}, within {report.perplexity_tolerance:.1%}"
    )
