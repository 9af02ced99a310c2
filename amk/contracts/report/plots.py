"""The pictures of a report. Nothing in them is text of a kernel's."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

from amk.contracts.gates.kappa import KAPPA
from amk.contracts.report.statistics import CONFIDENCE, KappaPoint, Statistics

INK: Final = "#333333"
STATUS_COLOURS: Final = {
    "conforms": "#1f5fa8",
    "violation": "#e08e2b",
    "broken": "#b5332a",
    "failed": "#6b4a6e",
    "not judged": "#b9c0c7",
}
VERDICT_COLOURS: Final = {
    "pass": "#1f5fa8",
    "violation": "#b5332a",
    "reject": "#e08e2b",
    "not applicable": "#d5dade",
}

_STYLE: Final[Any] = {
    "svg.fonttype": "path",  # the same picture wherever it is opened
    "svg.hashsalt": "amk",  # and the same bytes
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#999999",
    "xtick.color": INK,
    "ytick.color": INK,
}


def status_figure(found: Statistics) -> Figure:
    """Kernels by status."""
    with rc_context(_STYLE):
        figure = Figure(figsize=(6.4, 2.0), layout="constrained")
        axes = figure.subplots()
        names = list(found.statuses)
        counts = list(found.statuses.values())
        bars = axes.barh(names, counts, color=[STATUS_COLOURS[name] for name in names], height=0.7)
        axes.bar_label(bars, labels=[f"{count:,}" for count in counts], padding=4)
        axes.invert_yaxis()
        axes.set_xlim(0, 1.12 * max(counts, default=1) or 1)
        axes.set_xlabel("kernels")
        _dress(axes)
        return figure


def gate_figure(found: Statistics, names: Mapping[str, str]) -> Figure:
    """Kernels by verdict, a bar a gate; ``names`` are the gates' own."""
    with rc_context(_STYLE):
        rows = list(found.gates)
        figure = Figure(figsize=(7.6, 0.7 + 0.29 * max(1, len(rows))), layout="constrained")
        axes = figure.subplots()
        labels = [f"{gate}  {names.get(gate, '')}" for gate in rows]
        left = [0] * len(rows)
        widest = max((sum(counts.values()) for counts in found.gates.values()), default=1)
        for verdict, colour in VERDICT_COLOURS.items():
            counts = [found.gates[gate][verdict] for gate in rows]
            bars = axes.barh(labels, counts, left=left, color=colour, label=verdict, height=0.72)
            shown = [f"{count:,}" if count >= 0.04 * widest else "" for count in counts]
            ink = INK if verdict == "not applicable" else "white"
            axes.bar_label(bars, shown, label_type="center", color=ink, fontsize=8)
            left = [start + count for start, count in zip(left, counts, strict=True)]
        axes.invert_yaxis()
        axes.set_xlabel("kernels")
        _dress(axes)
        figure.legend(loc="outside upper right", ncols=4, frameon=False, fontsize=8)
        return figure


def kappa_figure(points: tuple[KappaPoint, ...]) -> Figure:
    """The share of kernels that G07 passes against kappa, with the exact interval."""
    with rc_context(_STYLE):
        figure = Figure(figsize=(6.4, 2.8), layout="constrained")
        axes = figure.subplots()
        kappas = [point.kappa for point in points]
        axes.fill_between(
            kappas,
            [point.passing.low for point in points],
            [point.passing.high for point in points],
            color="#1f5fa8",
            alpha=0.15,
            linewidth=0,
            label=f"exact {CONFIDENCE:.0%} interval",
        )
        axes.plot(kappas, [point.passing.rate for point in points], color="#1f5fa8", marker="o", label="pass")
        axes.axvline(KAPPA, color=INK, linestyle="--", linewidth=1, label=f"kappa {KAPPA:g}, the verifier's")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(kappas))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        low = min((point.passing.low for point in points), default=0.0)
        axes.set_ylim(max(0.0, low - 0.05), 1.02)
        axes.set_xlabel("kappa")
        axes.set_ylabel("kernels that pass G07")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper right", ncols=3, frameon=False, fontsize=8)
        _dress(axes)
        return figure


def svg(figure: Figure) -> str:
    """The figure as an ``<svg>`` element to stand in a page: without a declaration, without a date."""
    stream = io.StringIO()
    with rc_context(_STYLE):
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = stream.getvalue()
    return re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)


def _dress(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=3)
