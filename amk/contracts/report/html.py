"""``report.html``: one file that loads nothing and runs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup

from amk.contracts.gates.error_ratio import INFINITE
from amk.contracts.gates.kappa import KAPPA
from amk.contracts.report.plots import gate_figure, kappa_figure, status_figure, svg
from amk.contracts.report.statistics import Row, Share, Statistics
from amk.contracts.report.templates import html_template
from amk.contracts.report.text import printable

_CELLS: Final = {
    "pass": Markup('<td class="v pass" title="pass">+</td>'),
    "violation": Markup('<td class="v violation" title="violation">X</td>'),
    "reject": Markup('<td class="v reject" title="reject">r</td>'),
    "not applicable": Markup('<td class="v na" title="not applicable">.</td>'),
    None: Markup('<td class="v"></td>'),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """What a report says of itself. ``total`` counts the work list, ``names`` are the gates'."""

    source: str
    amk: str
    gates_digest: str
    options: Mapping[str, Any]
    machine: Mapping[str, str]
    names: Mapping[str, str]
    total: int
    complete: bool


def render_html(heading: Heading, rows: Sequence[Row], found: Statistics) -> str:
    """The page, with its pictures in it."""
    pictures = {
        "status_svg": Markup(svg(status_figure(found))),  # noqa: S704 - matplotlib's own, and no kernel's text in it
        "gates_svg": Markup(svg(gate_figure(found, heading.names))),  # noqa: S704
        "kappa_svg": Markup(svg(kappa_figure(found.kappa))) if found.kappa[0].passing.of else "",  # noqa: S704
    }
    shares = {
        "conform": found.conforming,
        "have a violation": found.violating,
        "are broken, whatever the tolerance": found.broken,
        "fail to run": found.failed,
    }
    return html_template("report.html.j2").render(
        source=printable(heading.source),
        amk=heading.amk,
        gates_digest=heading.gates_digest,
        options=heading.options,
        machine=heading.machine,
        names=heading.names,
        total=heading.total,
        complete=heading.complete,
        stats=found,
        rows=rows,
        gates=list(found.gates),
        shares=list(shares.items()),
        kappa_granted=f"{KAPPA:g}",
        cell=cell,
        percent=percent,
        interval=interval,
        kappa=kappa_text,
        **pictures,
    )


def cell(verdict: str | None) -> Markup:
    """A gate's verdict, as a cell of the kernels' table."""
    return _CELLS[verdict]


def interval(share: Share) -> str:
    """``6: 50.0 % (21.1 % to 78.9 %)``."""
    return f"{share.count:,}: {percent(share.rate)} ({percent(share.low)} to {percent(share.high)})"


def kappa_text(kappa: float | None) -> str:
    """``1.4``; nothing where it was not measured."""
    if kappa is None:
        return ""
    return "\N{INFINITY}" if kappa >= INFINITE else f"{kappa:.2g}"


def percent(rate: float) -> str:
    """``62.1 %``; a dash for no rate."""
    return f"{rate:.1%}".replace("%", " %") if rate == rate else "-"  # noqa: PLR0124 - NaN
