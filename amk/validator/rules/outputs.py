"""Outputs.

Each region of an output buffer is written exactly once per executed step: no word by two accesses; and where all
bounds on an axis are constant, the whole axis; where they carry symbols, all from the least to the greatest.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from amk.ir.regions import POS, TOKENS
from amk.validator.accesses import WRITE, Accesses
from amk.validator.boxes import BY_POS, BY_TOKENS, Grid
from amk.validator.chains import chains, points
from amk.validator.context import Context
from amk.validator.findings import Report, Rule
from amk.validator.program import Bools, Ints

RULE: Final = Rule(code="AMK-V309", title="output not written once", statement=__doc__ or "")


def check(context: Context, report: Report) -> None:
    """Report outputs that a step leaves out or writes twice."""
    for name, buffer in context.model.buffer.items():
        if buffer.kind != "output":
            continue
        found = context.accesses.get(name)
        if found is None or not len(found.write_boxes):
            report.add(RULE, f"no task writes the output {name}")
        else:
            _check(context, found, report)


def _check(context: Context, found: Accesses, report: Report) -> None:
    table, writes = found.table, found.write_boxes
    bounds = np.concatenate([table.low[writes], table.high[writes]])
    symbolic: Bools = (bounds[..., [BY_POS, BY_TOKENS]] != 0).any(axis=0).any(axis=-1)
    done: set[bytes] = set()
    for p, m in points(table, context.reach):
        low, high = table.at(p, m)
        grid = Grid(low[writes], high[writes], found.buffer.shape)
        begin, end = grid.ranges(low, high)
        shape = begin[writes].tobytes() + end[writes].tobytes()
        if shape in done:
            continue
        done.add(shape)
        chain = chains(found, begin, end, grid, np.arange(len(found.task)))
        context.counts["checks"] += len(chain.cell)
        where = f"({POS}={p}, {TOKENS}={m})"
        for at in np.flatnonzero(chain.cell[1:] == chain.cell[:-1])[:1].tolist():
            one, two = (context.program.describe(int(task)) for task in chain.task[at : at + 2])
            word = ", ".join(map(str, grid.corner(int(chain.cell[at]))))
            text = f"{one} and {two} both write {found.buffer.id}[{word}] in a step {where}"
            report.add(RULE, text, mend="leave the word to one of them")
        missing = np.setdiff1d(_wanted(found, grid, low, high, symbolic), chain.cell)
        for cell in missing[:1].tolist():
            word = ", ".join(map(str, grid.corner(cell)))
            others = ", ".join(context.program.describe(int(task)) for task in chain.task[:2])
            text = f"no task of a step writes {found.buffer.id}[{word}] {where}, though {others} write others"
            report.add(RULE, text, mend="let one of them write it too")


def _wanted(found: Accesses, grid: Grid, low: Ints, high: Ints, symbolic: Bools) -> Ints:
    """Every cell that a step should write."""
    writes = found.of(WRITE)
    boxes = found.box[writes]
    least = np.where(symbolic, low[boxes].min(axis=0), 0)
    most = np.where(symbolic, high[boxes].max(axis=0), np.array(found.buffer.shape))
    begin, end = grid.ranges(least[None, :], most[None, :])
    return grid.cells(begin, end)[1]
