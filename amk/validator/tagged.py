"""Words of tagged buffers: the cells that accesses cut them into, each with the versions that a step writes.

A word is (payload, epoch), epoch = 1 + (T0+t)*G + g; writes name g, reads name (lag, g) and wait until the word carries
that very epoch. The last version of a step is followed by the first of the next, and a read with lag 1 names the last
version of a step. Three rules decide that this works: T1 (``rules.tag_writer``), T2 (``rules.tag_overwritten``) and T3
(``rules.tag_order``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from amk.validator.accesses import READ, Accesses
from amk.validator.boxes import Domain, Grid
from amk.validator.chains import Chains, Touches, chains, points, touches
from amk.validator.program import Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Words:
    """One way in which the accesses of a tagged buffer lie.

    Attributes
    ----------
    chain
        Writes by cell, in the order of their versions.
    repeats
        A step may follow another.
    """

    found: Accesses
    grid: Grid
    chain: Chains
    reads: Touches
    repeats: bool

    def show(self, cell: int) -> str:
        """The least word of a cell as a person writes it."""
        return f"{self.found.buffer.id}[{', '.join(map(str, self.grid.corner(cell)))}]"

    def followers(self, entry: Ints) -> tuple[Ints, Ints]:
        """For chain entries: the entry of the next version of the word, and how many steps later it is written."""
        past = self.chain.past(self.chain.cell[entry])
        last = entry + 1 == past
        return np.where(last, self.chain.first(self.chain.cell[entry]), entry + 1), last.astype(np.int64)


def layouts(found: Accesses, reach: Domain) -> Iterator[Words]:
    """Every way in which the accesses of a buffer lie, for some number of rows."""
    done: set[bytes] = set()
    for p, m in points(found.table, reach):
        low, high = found.table.at(p, m)
        # Cut by reads too: whether somebody reads a version is asked of each word.
        grid = Grid(low, high, found.buffer.shape)
        begin, end = grid.ranges(low, high)
        repeats = reach.reaches(m, 1)
        shape = begin.tobytes() + end.tobytes() + bytes([repeats])
        if shape in done:
            continue
        done.add(shape)
        chain = chains(found, begin, end, grid, found.version)
        reads = touches(found, found.of(READ), begin, end, grid)
        yield Words(found=found, grid=grid, chain=chain, reads=reads, repeats=repeats)
