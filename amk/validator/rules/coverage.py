"""Coverage.

    Every word that is read is written: by this step for lag 0, by every step for lag 1 (the step before), for every
    reachable pos and tokens.

A region that depends on symbols is tried on each interval on which the order of all bounds is constant.
"""

from __future__ import annotations

from typing import Final

from amk.ir.regions import POS, TOKENS
from amk.validator.accesses import Accesses
from amk.validator.boxes import Grid
from amk.validator.context import Context
from amk.validator.findings import Report, Rule
from amk.validator.program import Ints

RULE: Final = Rule(code="AMK-V304", title="uncovered read", statement=__doc__ or "")


def uncovered(
    context: Context, report: Report, found: Accesses, *, number: Ints, grid: Grid, cell: Ints, point: tuple[int, int]
) -> None:
    """Report reads of cells that nothing writes, one line a read."""
    told: set[int] = set()
    for one, at in zip(number.tolist(), cell.tolist(), strict=True):
        if one in told:
            continue
        told.add(one)
        if report.full(RULE):
            report.more(RULE, 1)
            continue
        word = ", ".join(map(str, grid.corner(at)))
        reader = context.program.describe(int(found.task[one]))
        report.add(
            RULE,
            f"{reader} reads {found.show(int(found.box[one]))}, but no task of a step writes [{word}] "
            f"({POS}={point[0]}, {TOKENS}={point[1]})",
            mend=f"write all of what is read of {found.buffer.id}, or read less",
        )
