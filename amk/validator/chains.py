"""Which writes touch which word, in their order: the cells of a buffer, each with its chain of writes.

Write boxes cut a buffer into cells; all words of a cell are written by the same accesses. Race-freedom makes the
writes of a cell a chain under ->, and the firing order of one step sorts it. The cells depend on the symbols only
through the order of all bounds, so one point is tried for each interval on which that order is constant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from amk.validator.accesses import WRITE, Accesses
from amk.validator.boxes import BASE, BY_POS, BY_TOKENS, BoxTable, Domain, Grid, spread
from amk.validator.program import Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class Chains:
    """Writes by cell, each cell's in firing order.

    Attributes
    ----------
    cell, task, version
        Per entry of a chain, sorted by cell.
    """

    cell: Ints
    task: Ints
    version: Ints

    def first(self, cell: Ints) -> Ints:
        """Where the chain of each cell begins."""
        return np.searchsorted(self.cell, cell, "left")

    def past(self, cell: Ints) -> Ints:
        """Where the chain of each cell ends."""
        return np.searchsorted(self.cell, cell, "right")

    @cached_property
    def _by_version(self) -> tuple[Ints, Ints, Ints]:
        """Keys of (cell, version) in order, the entries they belong to, and the versions that occur."""
        names = np.unique(self.version)
        key = self.cell * (len(names) + 1) + np.searchsorted(names, self.version)
        order = np.argsort(key, kind="stable")
        return key[order], order, names

    def occurrences(self, cell: Ints, version: Ints) -> tuple[Ints, Ints]:
        """Half-open ranges of the occurrences of a version in a cell's chain; ``entry`` says where each is."""
        key, _, names = self._by_version
        place = np.searchsorted(names, version)
        occurs = np.isin(version, names)
        wanted = cell * (len(names) + 1) + np.where(occurs, place, len(names))
        return np.searchsorted(key, wanted, "left"), np.searchsorted(key, wanted, "right")

    def entry(self, occurrence: Ints) -> Ints:
        """The chain entry of an occurrence."""
        return self._by_version[1][occurrence]


def chains(found: Accesses, begin: Ints, end: Ints, grid: Grid, rank: Ints) -> Chains:
    """The chains of a buffer's writes.

    Parameters
    ----------
    begin, end
        Cells of every box of the buffer.
    rank
        Per access: a firing order, or whatever else sorts a chain.
    """
    writes = found.of(WRITE)
    which, cell = grid.cells(begin[found.box[writes]], end[found.box[writes]])
    number = writes[which]
    order = np.lexsort((rank[number], cell))
    number, cell = number[order], cell[order]
    return Chains(cell=cell, task=found.task[number], version=found.version[number])


@dataclass(frozen=True, kw_only=True, eq=False)
class Touches:
    """Accesses of one kind against cells, with equal (box, lag, version) taken together as a class.

    Attributes
    ----------
    numbers, start, count
        Access numbers sorted by class, and each class's part of them.
    lag, version
        Per class.
    owner, cell
        Per pair of a class and a cell that it touches.
    """

    numbers: Ints
    start: Ints
    count: Ints
    lag: Ints
    version: Ints
    owner: Ints
    cell: Ints

    def expand(self, pairs: Ints) -> tuple[Ints, Ints]:
        """For each of these pairs, every access of its class: (which of ``pairs``, access number)."""
        owner = self.owner[pairs]
        which, at = spread(self.start[owner], self.count[owner])
        return which, self.numbers[at]

    def chunks(self, pairs: Ints, most: int = 1 << 21) -> list[Ints]:
        """``pairs`` cut so that none expands to much more than ``most`` rows."""
        if not len(pairs):
            return []
        work = np.cumsum(self.count[self.owner[pairs]])
        return np.split(pairs, np.searchsorted(work, np.arange(most, int(work[-1]), most)))


def touches(found: Accesses, numbers: Ints, begin: Ints, end: Ints, grid: Grid) -> Touches:
    """The cells that these accesses touch."""
    columns = np.stack([found.box[numbers], found.lag[numbers], found.version[numbers]], axis=1)
    classes, inverse, count = np.unique(columns, axis=0, return_inverse=True, return_counts=True)
    owner, cell = grid.cells(begin[classes[:, 0]], end[classes[:, 0]])
    return Touches(
        numbers=numbers[np.argsort(inverse.reshape(-1), kind="stable")],
        start=np.cumsum(count) - count,
        count=count,
        lag=classes[:, 1],
        version=classes[:, 2],
        owner=owner,
        cell=cell,
    )


def points(table: BoxTable, reach: Domain, shifts: tuple[int, ...] = (0,)) -> Iterator[tuple[int, int]]:
    """Values (p, m) that meet every order of the bounds; each box also counts ``shift`` steps earlier."""
    # Without symbols all that m decides is whether a step follows another, and the least and most rows tell.
    for m in reach.tokens if table.moves or table.scales else {reach.tokens[0], reach.tokens[-1]}:
        low, high = reach.pos_low, reach.last_pos(m, 0)
        if not table.moves:
            yield low, m
            continue
        wanted = {low, high}
        for step in shifts:
            wanted.add(min(high, low + step * m))
        for axis in range(table.rank):
            for crossing in _crossings(table, axis, m, shifts):
                wanted.update(range(crossing - 1, crossing + 3))
        yield from ((p, m) for p in sorted(wanted) if low <= p <= high)


def _crossings(table: BoxTable, axis: int, m: int, shifts: tuple[int, ...]) -> set[int]:
    rows = np.concatenate([table.low[:, axis], table.high[:, axis]])
    lines = {
        (int(row[BASE]) + m * (int(row[BY_TOKENS]) - step * int(row[BY_POS])), int(row[BY_POS]))
        for row in np.unique(rows, axis=0)
        for step in shifts
    }
    return {(b - a) // (s - r) for (a, s), (b, r) in combinations(sorted(lines), 2) if s != r}
