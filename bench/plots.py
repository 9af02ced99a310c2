"""The plots that ``bench.render`` draws. Needs matplotlib, which nothing else here does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import NullFormatter

from amk.measure.result import AMK
from bench.runs import Run

STYLES: dict[str, dict[str, Any]] = {
    AMK: {"color": "#1f5fa8", "marker": "o", "zorder": 3},
    "compile-graph": {"color": "#c0792a", "marker": "s"},
    "cublas-graph": {"color": "#5b8c5a", "marker": "^"},
    "eager": {"color": "#9aa3ad", "marker": "v"},
}
"""Of each arm, in the legend's order."""

LIMIT: dict[str, Any] = {"color": "#333333", "linestyle": "--", "linewidth": 1}


def roofline(runs: Sequence[Run], path: Path) -> None:
    """Time a token against weight bytes, each arm at its least context, with the time that reading them alone takes.

    Of runs in bf16, in which all arms stream the same bytes.
    """
    runs = [run for run in runs if run.result is not None and run.result.dtype == "bf16"]
    figure, both = plt.subplots(1, 2, figsize=(9, 3.8), constrained_layout=True)
    for axes in both:
        for arm, style in STYLES.items():
            points = sorted(
                (run.result.weight_bytes / 1e9, run.told(arm)[0].median)
                for run in runs
                if run.result is not None and run.told(arm)
            )
            if points:
                axes.plot(*zip(*points, strict=True), label=arm, markersize=5, **style)
        floor = sorted(
            (run.result.weight_bytes / 1e9, run.result.weight_bytes / run.result.limits.read_bytes_per_s * 1e6)
            for run in runs
            if run.result is not None and run.result.limits is not None
        )
        if floor:
            axes.plot(*zip(*floor, strict=True), label="bytes / measured read rate", **LIMIT)
        _dress(axes, "GB of weights a token")
    # The scale of amk and the fastest arm of PyTorch; the logarithmic axes have room for the others.
    best = [us for run in runs for row in run.told(AMK)[:1] if (us := run.best_torch_us(row.context)) is not None]
    ours = [run.told(AMK)[0].median for run in runs if run.told(AMK)]
    both[0].set(xlim=(0, None), ylim=(0, 1.25 * max(best + ours, default=1.0)))
    both[0].set_title("Linear axes", loc="left", fontsize=10)
    both[1].set(xscale="log", yscale="log")
    both[1].set_title("Logarithmic axes", loc="left", fontsize=10)
    sizes = {run.result.weight_bytes / 1e9: run.title for run in runs if run.result is not None}
    # Names in two rows by turns: on logarithmic axes large models are close to one another.
    places = enumerate(sorted(sizes.items()))
    labels = ["\n".join([f"{size:.3g}", *[""] * (place % 2), title]) for place, (size, title) in places]
    both[1].set_xticks(sorted(sizes), labels=labels, fontsize=8)
    both[1].xaxis.set_minor_formatter(NullFormatter())
    both[1].yaxis.set_major_formatter("{x:,g}")
    figure.legend(*both[1].get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside lower center", ncols=5)
    least = sorted({run.told(arm)[0].context for run in runs for arm in STYLES if run.told(arm)})
    _save(figure, runs, path, f"context {', '.join(map(str, least))}")


def contexts(runs: Sequence[Run], path: Path) -> None:
    """Time a token against context, a panel a run, with the bar on how it may grow."""
    shown = [run for run in runs if run.rows]
    columns = min(2, max(1, len(shown)))
    rows = -(-max(1, len(shown)) // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(4.5 * columns, 3.2 * rows), constrained_layout=True, squeeze=False
    )
    for axes, run in zip(grid.flat, shown, strict=False):
        _panel(axes, run)
        _dress(axes, "positions before the token")
    for axes in grid.flat[len(shown) :]:
        axes.set_axis_off()
    # Not every panel has every line.
    named = {name: line for axes in grid.flat for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(named.values(), named.keys(), frameon=False, fontsize=8, loc="outside lower center", ncols=5)
    _save(figure, runs, path, "batch 1, greedy")


def _panel(axes: Any, run: Run) -> None:
    """The scale is that of amk, its bar and the fastest arm of PyTorch; arms that lie above it are named there."""
    lines = {arm: [(row.context, row.median) for row in run.told(arm)] for arm in STYLES}
    bars = [(row.context, bar) for row in run.rows if row.arm == AMK and (bar := run.bar_us(row)) is not None]
    if bars:
        axes.plot(*zip(lines[AMK][0], *sorted(bars), strict=True), label="bar of amk", **LIMIT)
    best = [us for row in run.rows if (us := run.best_torch_us(row.context)) is not None]
    top = 1.25 * max([us for _, us in (*lines[AMK], *bars)] + best, default=1.0)
    above = []
    for arm, points in lines.items():
        if points:
            axes.plot(*zip(*points, strict=True), label=arm, markersize=5, **STYLES[arm])
            if min(us for _, us in points) > top:
                above.append(f"above: {arm}, {points[0][1]:,.0f} to {points[-1][1]:,.0f} µs")
    axes.set_ylim(0, top)
    axes.text(0.02, 0.97, "\n".join(above), transform=axes.transAxes, va="top", fontsize=7, color="#555555")
    withheld = run.result is not None and run.result.parity.verdict != "pass"
    axes.set_title(f"{run.title}{': amk withheld, parity fails' if withheld else ''}", loc="left", fontsize=10)


def _dress(axes: Any, what: str) -> None:
    axes.set_xlabel(what)
    axes.set_ylabel("µs a token")
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, alpha=0.25)


def _save(figure: Any, runs: Sequence[Run], path: Path, what: str) -> None:
    """Say below what was measured, on what, and write the picture."""
    targets = ", ".join(sorted({run.target for run in runs}))
    commits = ", ".join(sorted({run.commit for run in runs}))
    figure.suptitle(f"{targets}, {what}; commit {commits}; medians", fontsize=8, color="#555555")
    figure.savefig(path, dpi=110)
    plt.close(figure)
