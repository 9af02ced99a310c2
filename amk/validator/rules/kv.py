"""KV trail.

The row axis of a KV buffer is the one whose bounds carry ``pos``. In each step, for each word of the other axes that
is ever read:

    every write box has rows [pos, pos+m), and no word is written twice in a step;
    a read or stream of rows [a, b) has b <= pos+m;
    its rows [pos0, pos_t) are the trail of write boxes over earlier steps (ordered: race-freedom and C(D));
    its rows from pos_t on are written in this step, by a task -> the read (sigma of a stream), of the version it names.

Rows [0, pos0) are launch state: the trail of earlier launches.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from amk.validator.accesses import READ, WRITE, Accesses, verb
from amk.validator.boxes import BASE, BY_POS, BY_TOKENS, Grid
from amk.validator.chains import Chains, Touches, chains, touches
from amk.validator.context import Context
from amk.validator.findings import SHOWN_PER_RULE, Report, Rule
from amk.validator.program import Bools, Ints
from amk.validator.rules.race import seen

RULE: Final = Rule(code="AMK-V305", title="KV trail", statement=__doc__ or "")


def check(context: Context, report: Report) -> None:
    """Report KV buffers that are not appended to row block by row block, or read beyond what is there."""
    for found in context.plain:
        if found.buffer.kind == "kv":
            _Buffer(context, found, report).check()


class _Buffer:
    def __init__(self, context: Context, found: Accesses, report: Report) -> None:
        self.context = context
        self.found = found
        self.report = report
        self.table = found.table
        self.tokens = context.reach.tokens

    def check(self) -> None:
        moving = (self.table.low[..., BY_POS] != 0) | (self.table.high[..., BY_POS] != 0)
        axes = np.flatnonzero(moving.any(axis=0))
        if len(axes) != 1:
            why = "more than one axis carries pos" if len(axes) else "no axis carries pos: its rows cannot be told"
            self.report.add(RULE, f"{self.found.buffer.id}: {why}")
            return
        self.axis = int(axes[0])
        others = np.arange(self.table.rank) != self.axis
        if (self.table.low[:, others, BY_TOKENS] != 0).any() or (self.table.high[:, others, BY_TOKENS] != 0).any():
            self.report.add(RULE, f"{self.found.buffer.id}: an axis beside the rows carries tokens")
            return
        if self._appends():
            self._readers()

    def _appends(self) -> bool:
        """Whether every write box is a whole row block."""
        good = True
        for number in self.found.of(WRITE).tolist():
            box = int(self.found.box[number])
            if not (self._is(self.table.low[box], 0) and self._is(self.table.high[box], 1)):
                good = False
                writer = self.context.program.describe(int(self.found.task[number]))
                text = f"{writer} writes {self.found.show(box)}: its rows are not [pos, pos+tokens)"
                self.report.add(RULE, text)
        return good

    def _is(self, bounds: Ints, blocks: int) -> bool:
        """Whether a row bound is ``pos + blocks * tokens`` for every m."""
        base, by_pos, by_tokens = (int(bounds[self.axis, part]) for part in (BASE, BY_POS, BY_TOKENS))
        return by_pos == 1 and all(base + by_tokens * m == blocks * m for m in self.tokens)

    def _readers(self) -> None:
        low, high = self._flat()
        writes = self.found.write_boxes
        grid = Grid(low[writes], high[writes], self._sizes())
        begin, end = grid.ranges(low, high)
        chain = chains(self.found, begin, end, grid, self.context.sight.order.rank[self.found.task])
        self._once(chain, grid)
        for kind in (READ, *self.found.stream_kinds):
            numbers = self.found.of(kind)
            if len(numbers):
                past, new = self._split(numbers)
                self._appended(touches(self.found, numbers[past | new], begin, end, grid), chain, grid)
                self._new_rows(kind, touches(self.found, numbers[new], begin, end, grid), chain)

    def _flat(self) -> tuple[Ints, Ints]:
        """Bounds of the boxes with the row axis squeezed to one cell."""
        low, high = (rows[..., BASE].copy() for rows in (self.table.low, self.table.high))
        low[:, self.axis], high[:, self.axis] = 0, 1
        return low, high

    def _sizes(self) -> tuple[int, ...]:
        sizes = list(self.found.buffer.shape)
        sizes[self.axis] = 1
        return tuple(sizes)

    def _once(self, chain: Chains, grid: Grid) -> None:
        for at in np.flatnonzero(chain.cell[1:] == chain.cell[:-1])[:1].tolist():
            one, two = (self.context.program.describe(int(task)) for task in chain.task[at : at + 2])
            place = ", ".join(map(str, grid.corner(int(chain.cell[at]))))
            self.report.add(
                RULE, f"{one} and {two} both write the rows of a step of {self.found.buffer.id} at [{place}]"
            )

    def _extent(self, box: int) -> tuple[bool, bool, bool]:
        """Whether a box has rows before pos, rows from pos on, and rows past pos + tokens, for some p and m."""
        past = new = beyond = False
        reach = self.context.reach
        for m in self.tokens:
            for p in (reach.pos_low, reach.last_pos(m, 0)):
                low, high = (
                    int(rows[box, self.axis] @ np.array([1, p, m])) for rows in (self.table.low, self.table.high)
                )
                past |= low < p and reach.reaches(m, 1)
                new |= high > p
                beyond |= high > p + m
        return past, new, beyond

    def _split(self, numbers: Ints) -> tuple[Bools, Bools]:
        """Per access, whether it has rows before pos, and from pos on; reports those that have rows past the step."""
        boxes, place = np.unique(self.found.box[numbers], return_inverse=True)
        extents = np.array([self._extent(box) for box in boxes.tolist()], bool)[place.reshape(-1)]
        for number in numbers[extents[:, 2]][:SHOWN_PER_RULE].tolist():
            self._say(number, "which holds rows that no step has written yet")
        return extents[:, 0], extents[:, 1]

    def _appended(self, reads: Touches, chain: Chains, grid: Grid) -> None:
        bare = chain.first(reads.cell) == chain.past(reads.cell)
        for pair in np.flatnonzero(bare)[:SHOWN_PER_RULE].tolist():
            place = ", ".join(map(str, grid.corner(int(reads.cell[pair]))))
            self._say(int(reads.numbers[reads.start[reads.owner[pair]]]), f"but no task appends rows at [{place}]")

    def _new_rows(self, kind: int, reads: Touches, chain: Chains) -> None:
        """Accesses to this step's rows against the task that writes them."""
        program, found = self.context.program, self.found
        for part in reads.chunks(np.flatnonzero(chain.first(reads.cell) < chain.past(reads.cell))):
            which, number = reads.expand(part)
            at = chain.first(reads.cell[part])[which]
            reader, writer, version = found.task[number], chain.task[at], chain.version[at]
            self.context.counts["checks"] += len(number)
            before = seen(self.context.sight.order, np.full(len(number), kind), reader, program.worker[writer])
            for row in np.flatnonzero(before <= program.index[writer])[:SHOWN_PER_RULE].tolist():
                late = program.describe(int(writer[row]))
                need = "read the new rows from the activations" if kind == READ else "stream the rows before pos only"
                text = f"whose new rows {late} has not written before it"
                self._say(int(number[row]), text, mend=f"{need}, or make it wait for {late}")
            if kind == READ:
                for row in np.flatnonzero(version != found.version[number])[:SHOWN_PER_RULE].tolist():
                    wanted = found.version[number[row]]
                    self._say(int(number[row]), f"of which it names version {wanted}, and {version[row]} is written")

    def _say(self, number: int, what: str, *, mend: str = "") -> None:
        reader, does = self.context.program.describe(int(self.found.task[number])), verb(int(self.found.kind[number]))
        region = self.found.show(int(self.found.box[number]))
        self.report.add(RULE, f"{reader} {does} {region}, {what}", mend=mend)
