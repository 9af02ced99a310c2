"""Reads.

    Each word read by y@t (lag l in {0, 1}): the ->-latest write before y is in step t - l, and is by a task that y
    names, that is, of the version that y names. At step 0, lag 1 reads the state at launch: no write comes before y.

So for lag 0 some write of the word in this step precedes y, and the last that does is of the named version; for lag 1
no write of this step precedes y, and the last write of a step is of the named version. Race-freedom makes "last"
mean something, and no write precedes a task of an earlier step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from amk.validator.accesses import READ, Accesses
from amk.validator.boxes import Grid
from amk.validator.chains import Chains, Touches, chains, points, touches
from amk.validator.context import Context
from amk.validator.findings import Report, Rule
from amk.validator.program import Bools, Ints
from amk.validator.rules import coverage

RULE: Final = Rule(code="AMK-V303", title="wrong read", statement=__doc__ or "")


def check(context: Context, report: Report) -> None:
    """Report every read of an untagged buffer, KV apart, that may see another write than it names."""
    for found in context.plain:
        if found.buffer.kind != "kv" and len(found.of(READ)):
            _Buffer(context, found, report).check()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Cells:
    """One way in which the write boxes lie, at one point: chains of this step and the step before, and the reads.

    ``launched``: a step before this one may have written.
    """

    point: tuple[int, int]
    launched: bool
    grid: Grid
    now: Chains
    before: Chains
    reads: Touches


class _Buffer:
    def __init__(self, context: Context, found: Accesses, report: Report) -> None:
        self.context = context
        self.found = found
        self.report = report
        self.order = context.sight.order
        self.rank = self.order.rank[found.task]
        self.done: set[bytes] = set()

    def check(self) -> None:
        lagging = bool((self.found.lag == 1).any())
        for point in points(self.found.table, self.context.reach, (0, 1) if lagging else (0,)):
            cells = self._cells(point)
            if cells is not None:
                late = cells.reads.lag[cells.reads.owner] == 1
                self._this_step(cells, np.flatnonzero(~late))
                self._step_before(cells, np.flatnonzero(late))

    def _cells(self, point: tuple[int, int]) -> _Cells | None:
        """The cells at ``point``; None if boxes lay just so at an earlier one."""
        found, table, reach = self.found, self.found.table, self.context.reach
        p, m = point
        low, high = table.at(p, m)
        old_low, old_high = table.at(p - m, m)
        writes = found.write_boxes
        lows, highs = np.concatenate([low[writes], old_low[writes]]), np.concatenate([high[writes], old_high[writes]])
        grid = Grid(lows, highs, found.buffer.shape)
        begin, end = grid.ranges(low, high)
        old_begin, old_end = grid.ranges(old_low, old_high)
        launched = reach.steps_max > 1 and (p - m >= reach.pos_low if table.moves else reach.reaches(m, 1))
        parts = (begin, end, old_begin[writes], old_end[writes])
        shape = b"".join(part.tobytes() for part in parts) + bytes([launched])
        if shape in self.done:
            return None
        self.done.add(shape)
        now = chains(found, begin, end, grid, self.rank)
        before = chains(found, old_begin, old_end, grid, self.rank) if table.moves else now
        reads = touches(found, found.of(READ), begin, end, grid)
        return _Cells(point=point, launched=launched, grid=grid, now=now, before=before, reads=reads)

    def _precedes(self, write: Ints, read: Ints) -> Bools:
        """Whether task ``write`` -> task ``read`` in one step."""
        program = self.context.program
        return self.order.before_read(read, program.worker[write]) > program.index[write]

    def _this_step(self, cells: _Cells, pairs: Ints) -> None:
        chain, reads = cells.now, cells.reads
        bare = chain.first(reads.cell[pairs]) == chain.past(reads.cell[pairs])
        self._uncovered(cells, pairs[bare])
        for part in reads.chunks(pairs[~bare]):
            cell = reads.cell[part]
            past = chain.past(cell)
            place, end = chain.occurrences(cell, reads.version[reads.owner[part]])
            which, number = reads.expand(part)
            self.context.counts["checks"] += len(which)
            reader = self.found.task[number]
            good = np.zeros(len(which), bool)
            while len(rows := np.flatnonzero(~good & (place < end)[which])):
                at = chain.entry(place[which[rows]])
                fine = self._precedes(chain.task[at], reader[rows])
                follower = np.minimum(at + 1, len(chain.task) - 1)
                followed = at + 1 < past[which[rows]]
                fine &= ~(followed & self._precedes(chain.task[follower], reader[rows]))
                good[rows] = fine
                place = place + 1
            bad = np.flatnonzero(~good)
            self._wrong(cells, number[bad], cell[which[bad]])

    def _step_before(self, cells: _Cells, pairs: Ints) -> None:
        now, before, reads = cells.now, cells.before, cells.reads
        if cells.launched:
            bare = before.first(reads.cell[pairs]) == before.past(reads.cell[pairs])
            self._uncovered(cells, pairs[bare])
            pairs = pairs[~bare]
        for part in reads.chunks(pairs):
            cell = reads.cell[part]
            which, number = reads.expand(part)
            self.context.counts["checks"] += len(which)
            good = np.ones(len(which), bool)
            early = now.first(cell)
            rows = np.flatnonzero((early < now.past(cell))[which])
            good[rows] = ~self._precedes(now.task[early[which[rows]]], self.found.task[number[rows]])
            if cells.launched:
                last = before.version[before.past(cell) - 1]
                good &= (last == reads.version[reads.owner[part]])[which]
            bad = np.flatnonzero(~good)
            self._wrong(cells, number[bad], cell[which[bad]])

    def _uncovered(self, cells: _Cells, pairs: Ints) -> None:
        reads = cells.reads
        number = reads.numbers[reads.start[reads.owner[pairs]]]
        cell = reads.cell[pairs]
        coverage.uncovered(
            self.context, self.report, self.found, number=number, grid=cells.grid, cell=cell, point=cells.point
        )

    def _wrong(self, cells: _Cells, number: Ints, cell: Ints) -> None:
        for count, (one, at) in enumerate(zip(number.tolist(), cell.tolist(), strict=True)):
            if self.report.full(RULE):
                self.report.more(RULE, len(number) - count)
                return
            reader = self.context.program.names[int(self.found.task[one])]
            mend = f"let {reader} wait for the write that it names and stand before the next, or name what it reads"
            self.report.add(RULE, self._tell(one, at, cells), mend=mend)

    def _tell(self, number: int, cell: int, cells: _Cells) -> str:
        found, program = self.found, self.context.program
        task, lag, wanted = (int(column[number]) for column in (found.task, found.lag, found.version))
        this = "this step" if lag == 0 else "the step before"
        at = np.array([cell])
        chain, reader = cells.now, np.array([task])
        entries = range(int(chain.first(at)[0]), int(chain.past(at)[0]))
        seen = [entry for entry in entries if self._precedes(chain.task[entry : entry + 1], reader)[0]]
        last = int(cells.before.past(at)[0]) - 1
        if seen:
            writer = program.describe(int(chain.task[seen[-1]]))
            what = f"version {chain.version[seen[-1]]} by {writer} of this step"
        elif last >= 0 and cells.before.cell[last] == cell:
            writer = program.describe(int(cells.before.task[last]))
            what = f"version {cells.before.version[last]} by {writer} of the step before"
        else:
            what = "of an earlier step"
        word = ", ".join(map(str, cells.grid.corner(cell)))
        region = found.show(int(found.box[number]))
        return (
            f"{program.describe(task)} reads version {wanted} of {this} in {region}, but the latest write before it at "
            f"[{word}] (pos={cells.point[0]}, tokens={cells.point[1]}) is {what}"
        )
