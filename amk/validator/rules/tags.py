"""Tags.

A word of a tagged buffer is (payload, epoch), epoch = 1 + (T0+t)*G + g; writes name g, reads name (lag, g) and wait
until the word carries that very epoch. For every word:

    T1  one writer task per (word, g); a read without one is a deadlock.
    T2  for successive versions, by x and then x', each reader y of the first: y = x', or y is earlier than x' on its
        worker, or y ~> x'. Otherwise x' may overwrite what y still waits for, and y waits for ever.
    T3  x and then x' on one worker, or x -> x', or some reader y of the first version as in T2. Otherwise the two
        stores may land in the other order.

The last version of a step is followed by the first of the next. A read with lag 1 names the last version of a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from amk.validator.accesses import READ, Accesses
from amk.validator.boxes import Domain, Grid
from amk.validator.chains import Chains, Touches, chains, points, touches
from amk.validator.context import Context
from amk.validator.findings import SHOWN_PER_RULE, Report, Rule
from amk.validator.program import Ints, Program
from amk.validator.rules import window

T1: Final = Rule(code="AMK-V306", title="tag without its one writer", statement=__doc__ or "")
T2: Final = Rule(code="AMK-V307", title="tag overwritten before it is read", statement=__doc__ or "")
T3: Final = Rule(code="AMK-V308", title="tags written in no order", statement=__doc__ or "")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Cells:
    grid: Grid
    chain: Chains
    reads: Touches
    repeats: bool  # a step may follow another


def single_writers(accesses: list[Accesses], program: Program, reach: Domain, report: Report) -> bool:
    """T1, which needs no order; whether it holds. The others assume it."""
    before = len(report.findings())
    for found in accesses:
        for cells in _layouts(found, reach):
            _t1(found, cells, program, report)
    return len(report.findings()) == before


def check(context: Context, report: Report) -> None:
    """T2 and T3."""
    for found in context.tagged:
        for cells in _layouts(found, context.reach):
            _t2(found, cells, context, report)
            _t3(found, cells, context, report)
            if cells.repeats and len(cells.chain.cell) and not report.refuted:
                _beyond_window(found, context, report)


def _layouts(found: Accesses, reach: Domain) -> Iterator[_Cells]:
    done: set[bytes] = set()
    for p, m in points(found.table, reach):
        low, high = found.table.at(p, m)
        writes = found.write_boxes
        grid = Grid(low[writes], high[writes], found.buffer.shape)
        begin, end = grid.ranges(low, high)
        repeats = reach.reaches(m, 1)
        shape = begin.tobytes() + end.tobytes() + bytes([repeats])
        if shape in done:
            continue
        done.add(shape)
        chain = chains(found, begin, end, grid, found.version)
        yield _Cells(grid=grid, chain=chain, reads=touches(found, found.of(READ), begin, end, grid), repeats=repeats)


def _word(found: Accesses, cells: _Cells, cell: int) -> str:
    return f"{found.buffer.id}[{', '.join(map(str, cells.grid.corner(cell)))}]"


def _t1(found: Accesses, cells: _Cells, program: Program, report: Report) -> None:
    chain, reads = cells.chain, cells.reads
    twice = (chain.cell[1:] == chain.cell[:-1]) & (chain.version[1:] == chain.version[:-1])
    for at in np.flatnonzero(twice)[:SHOWN_PER_RULE].tolist():
        one, two = (program.describe(int(task)) for task in chain.task[at : at + 2])
        word = _word(found, cells, int(chain.cell[at]))
        report.add(T1, f"T1: {one} and {two} both write version {chain.version[at]} of {word}")
    place, end = chain.occurrences(reads.cell, reads.version[reads.owner])
    orphan = (place == end) & ((reads.lag[reads.owner] == 0) | cells.repeats)
    for pair in np.flatnonzero(orphan)[:SHOWN_PER_RULE].tolist():
        owner = reads.owner[pair]
        reader = program.describe(int(found.task[reads.numbers[reads.start[owner]]]))
        word = _word(found, cells, int(reads.cell[pair]))
        report.add(T1, f"T1: {reader} waits for version {reads.version[owner]} of {word}, which no task writes")


def _followers(chain: Chains, entry: Ints) -> tuple[Ints, Ints]:
    """For chain entries: the entry of the next version of the word, and how many steps later it is written."""
    past = chain.past(chain.cell[entry])
    last = entry + 1 == past
    return np.where(last, chain.first(chain.cell[entry]), entry + 1), last.astype(np.int64)


def _t2(found: Accesses, cells: _Cells, context: Context, report: Report) -> None:
    chain, reads = cells.chain, cells.reads
    place, end = chain.occurrences(reads.cell, reads.version[reads.owner])
    lagging = reads.lag[reads.owner] == 1
    # A lag-1 read at step 0 finds the launch's own word, which the first version of the step overwrites; in a launch of
    # one step it finds nothing else.
    pairs = np.flatnonzero((place < end) | (lagging & (chain.first(reads.cell) < chain.past(reads.cell))))
    entry = np.zeros(len(reads.cell), np.int64)
    known = np.flatnonzero(place < end)
    entry[known] = chain.entry(place[known])
    missing = np.flatnonzero(lagging & ((place == end) | (not cells.repeats)))
    entry[missing] = chain.past(reads.cell[missing]) - 1
    for part in reads.chunks(pairs):
        follower, delta = _followers(chain, entry[part])
        # Seen from a lag-1 reader the writer is one step back, so is what follows it.
        delta = delta - lagging[part]
        which, number = reads.expand(part)
        _overwritten(found, cells, context, report, number=number, follower=follower[which], delta=delta[which])


def _overwritten(
    found: Accesses, cells: _Cells, context: Context, report: Report, *, number: Ints, follower: Ints, delta: Ints
) -> None:
    """T2 for readers ``number`` and what follows the version they read, ``delta`` steps after them."""
    if context.occurrence is None:
        return
    program, order = context.program, context.occurrence.order
    reader, writer = found.task[number], cells.chain.task[follower]
    context.counts["checks"] += len(number)
    real = delta < (2 if cells.repeats else 1)
    safe = ~real
    rows = np.flatnonzero(real & (delta >= 0))
    late = writer[rows] + delta[rows] * order.tasks
    safe[rows] = order.before_write(late, program.worker[reader[rows]]) > program.index[reader[rows]]
    bad = np.flatnonzero(~safe)
    for count, row in enumerate(bad.tolist()):
        if report.full(T2):
            report.more(T2, len(bad) - count)
            return
        one = program.describe(int(reader[row]), 0)
        two = (
            program.describe(int(writer[row]), int(delta[row]))
            if delta[row] >= 0
            else (f"{program.describe(int(writer[row]))} at step t-1")
        )
        word = _word(found, cells, int(cells.chain.cell[follower[row]]))
        report.add(
            T2,
            f"T2: {one} reads version {found.version[number[row]]} of {word}, which {two} overwrites with version "
            f"{cells.chain.version[follower[row]]}; nothing makes it wait for that read",
            mend=f"let {program.names[writer[row]]} wait for a signal of {program.names[reader[row]]}",
        )


def _t3(found: Accesses, cells: _Cells, context: Context, report: Report) -> None:
    chain, program, order = cells.chain, context.program, context.sight.order
    entry = np.arange(len(chain.cell))
    follower, delta = _followers(chain, entry)
    x, y = chain.task, chain.task[follower]
    length = np.array(program.length, np.int64)
    same = program.worker[x] == program.worker[y]
    later = delta * length[program.worker[x]] + program.index[y] > program.index[x]
    rows = np.flatnonzero(~same & ((delta == 0) | cells.repeats))
    ordered = same & later
    ordered[rows] = (
        order.before_write(y[rows] + delta[rows] * order.tasks, program.worker[x[rows]]) > program.index[x[rows]]
    )
    if not cells.repeats:
        ordered |= delta == 1
    ordered |= np.isin(entry, _read_entries(cells))
    for at in np.flatnonzero(~ordered)[:SHOWN_PER_RULE].tolist():
        one, two = program.describe(int(x[at]), 0), program.describe(int(y[at]), int(delta[at]))
        word = _word(found, cells, int(chain.cell[at]))
        report.add(T3, f"T3: {one} and {two} write successive versions of {word} and nothing orders the two stores")


def _read_entries(cells: _Cells) -> Ints:
    """Chain entries whose version some task reads (T2 orders it before the next one)."""
    chain, reads = cells.chain, cells.reads
    place, end = chain.occurrences(reads.cell, reads.version[reads.owner])
    # With lag 1 the reader is in the next step, where only the last version of a step is still there.
    counted = (place < end) & ((reads.lag[reads.owner] == 0) | cells.repeats)
    return chain.entry(place[counted])


def _beyond_window(found: Accesses, context: Context, report: Report) -> None:
    exact = context.sight.exact and (context.occurrence is None or context.occurrence.exact)
    if not exact:
        window.leave_open(context, report, f"tagged words of {found.buffer.id}, written in every step")
