"""Race-free.

For accesses x@t and y@t+delta (0 <= delta < D) of one untagged buffer, one of them a write, whose boxes at pos_t and
pos_t + delta*m overlap for some reachable pos_t and m:

    x -> y or y -> x.

On one worker, in queue order, read-then-write and write-then-write are ordered by obligations V1 and V2;
write-then-read needs ->, because warps drift. A task's own reads precede its writes; two writes of one task to one
word have no order. Pairs at distance >= D are ordered by C(D). Witness: Run({x, y}), in which both are ready.

Accesses of one box, kind and worker form a group. Along a queue the clocks grow, so of a group only the first access
that does not precede a write needs to be looked at: if that one sees the write, so do all after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from amk.validator.accesses import READ, STREAM, WRITE, Accesses, verb
from amk.validator.boxes import may_meet, overlapping, spread
from amk.validator.context import Context
from amk.validator.findings import Report, Rule
from amk.validator.order import Order
from amk.validator.program import Bools, Ints, Program
from amk.validator.rules import stream, window
from amk.validator.supply import Clock
from amk.validator.witness import Clash, tell_clash

RULE: Final = Rule(code="AMK-V301", title="race", statement=__doc__ or "")

# Pairs examined at once, so that memory does not grow with the schedule.
CHUNK: Final = 1 << 21


def check(context: Context, report: Report) -> None:
    """Report every pair of conflicting accesses that nothing orders."""
    for found in context.plain:
        if len(found.write_boxes):
            _Buffer(context, found, report).check()


def seen(order: Order, kind: Ints, instances: Ints, workers: Ints) -> Clock:
    """How many instances of each worker precede an access, each of its kind."""
    counts = order.before_write(instances, workers)
    if len(rows := np.flatnonzero(kind == READ)):
        counts[rows] = order.before_read(instances[rows], workers[rows])
    if len(rows := np.flatnonzero(kind >= STREAM)):
        for one in np.unique(kind[rows]).tolist():
            some = np.flatnonzero(kind == one)
            counts[some] = order.producers.before(instances[some], one - STREAM, workers[some])
    return counts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Groups:
    """Accesses sorted by (box, kind, worker, index); a group is a run of equal (box, kind, worker)."""

    task: Ints
    start: Ints
    end: Ints
    box: Ints
    kind: Ints
    worker: Ints
    key: Ints  # group * stride + index, ascending
    stride: int
    by_box: Ints  # first group of each box, and one past the last

    def find(self, group: Ints, index: Ints) -> Ints:
        """The first access of each group whose queue index is at least ``index``."""
        return np.searchsorted(self.key, group * self.stride + np.minimum(index, self.stride - 1))


def grouped(found: Accesses, program: Program) -> Groups:
    """The groups of a buffer's accesses."""
    worker, index = program.worker[found.task], program.index[found.task]
    order = np.lexsort((index, worker, found.kind, found.box))
    columns = np.stack([found.box[order], found.kind[order], worker[order]])
    fresh = np.ones(len(order), bool)
    fresh[1:] = (columns[:, 1:] != columns[:, :-1]).any(axis=0)
    start = np.flatnonzero(fresh)
    end = np.append(start[1:], len(order))
    stride = max(program.length, default=0) + 1
    box, kind, group_worker = columns[:, start]
    return Groups(
        task=found.task[order],
        start=start,
        end=end,
        box=box,
        kind=kind,
        worker=group_worker,
        key=(np.cumsum(fresh) - 1) * stride + index[order],
        stride=stride,
        by_box=np.searchsorted(box, np.arange(len(found.table.boxes) + 1)),
    )


def _extremes(worker: Ints, order: Ints, task: Ints, wanted: Bools) -> Ints:
    """Of the wanted tasks, the one of each worker that is largest in ``order``."""
    rows = np.flatnonzero(wanted)
    rows = rows[np.lexsort((order[task[rows]], worker[rows]))]
    keep = np.ones(len(rows), bool)
    keep[:-1] = worker[rows[1:]] != worker[rows[:-1]]
    return task[rows[keep]]


def _cut(work: Ints) -> list[slice]:
    """Cut rows into runs none of which has much more than ``CHUNK`` of ``work``."""
    if not len(work):
        return []
    total = np.cumsum(work)
    cuts = np.searchsorted(total, np.arange(CHUNK, int(total[-1]), CHUNK)).tolist()
    return [slice(first, last) for first, last in pairwise([0, *cuts, len(work)])]


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """One side of each pair: the task, and the group that its access is in."""

    task: Ints
    group: Ints


class _Buffer:
    def __init__(self, context: Context, found: Accesses, report: Report) -> None:
        self.context = context
        self.found = found
        self.report = report
        self.order = context.sight.order
        self.program = context.program
        self.index = context.program.index
        self.groups = grouped(found, context.program)
        self.all_boxes = np.unique(found.box)

    def check(self) -> None:
        table, reach, writes = self.found.table, self.context.reach, self.found.write_boxes
        # The earlier step first; at distance 0 each write against everything covers both directions.
        for write, other in self._group_pairs(*overlapping(table, writes, self.all_boxes, 0, reach)):
            self._same_step(write, other)
        for delta in range(1, self.order.steps):
            if self._apart(delta):
                continue
            for write, other in self._group_pairs(*overlapping(table, writes, self.all_boxes, delta, reach)):
                self._write_first(write, other, delta)
            others, later = overlapping(table, self.all_boxes, writes, delta, reach)
            for write, other in self._group_pairs(later, others):
                self._write_last(write, other, delta)
        if not self.report.refuted:
            self._beyond_window()

    def _apart(self, delta: int) -> bool:
        """Whether whole steps are in order, whatever the boxes: each worker's first access after all of the earlier."""
        groups = self.groups
        worker = groups.worker
        first, last = groups.task[groups.start], groups.task[groups.end - 1]
        others = (READ, *self.found.stream_kinds)
        for early, late in ((WRITE, WRITE), *((WRITE, kind) for kind in others), *((kind, WRITE) for kind in others)):
            x = _extremes(worker, self.index, last, groups.kind == early)
            y = _extremes(worker, -self.index, first, groups.kind == late)
            y, x = np.repeat(y, len(x)), np.tile(x, len(y))
            self.context.counts["checks"] += len(x)
            sees = seen(self.order, np.full(len(x), late), y + delta * self.order.tasks, self.program.worker[x])
            if (sees <= self.index[x]).any():
                return False
        return True

    def _group_pairs(self, writes: Ints, others: Ints) -> Iterator[tuple[Ints, Ints]]:
        """Groups that write the first box against all groups of the second, in chunks of bounded work."""
        groups = self.groups
        pair, first = spread(groups.by_box[writes], groups.by_box[writes + 1] - groups.by_box[writes])
        wanted = groups.kind[first] == WRITE
        pair, first = pair[wanted], first[wanted]
        low = groups.by_box[others[pair]]
        count = groups.by_box[others[pair] + 1] - low
        for some in _cut(count):
            which, other = spread(low[some], count[some])
            write = first[some][which]
            for part in _cut(groups.end[write] - groups.start[write]):
                yield write[part], other[part]

    def _same_step(self, write: Ints, other: Ints) -> None:
        groups, order = self.groups, self.order
        pair, at = spread(groups.start[write], groups.end[write] - groups.start[write])
        x, group = groups.task[at], other[pair]
        self.context.counts["checks"] += len(x)
        before = order.before_write(x, groups.worker[group]).astype(np.int64)
        place = groups.find(group, before)
        rows = np.flatnonzero(place < groups.end[group])
        x, group = x[rows], group[rows]
        y = groups.task[place[rows]]
        sees = seen(order, groups.kind[group], y, groups.worker[write[pair[rows]]])
        self._clash(sees <= self.index[x], _Side(x, write[pair[rows]]), _Side(y, group), 0)
        self._twice(write, other)

    def _twice(self, write: Ints, other: Ints) -> None:
        """One task that writes a word through two of its boxes."""
        groups = self.groups
        own = (groups.kind[other] == WRITE) & (groups.worker[write] == groups.worker[other])
        write, other = write[own], other[own]
        pair, at = spread(groups.start[write], groups.end[write] - groups.start[write])
        x = groups.task[at]
        first = groups.find(other[pair], self.index[x])
        last = groups.find(other[pair], self.index[x] + 1)
        twice = last - first > (write[pair] == other[pair])
        self._clash(twice, _Side(x, write[pair]), _Side(x, other[pair]), 0)

    def _write_first(self, write: Ints, other: Ints, delta: int) -> None:
        """The last write of a group at step 0 against the first access of the other ``delta`` steps later."""
        groups = self.groups
        x, y = groups.task[groups.end[write] - 1], groups.task[groups.start[other]]
        self.context.counts["checks"] += len(x)
        kind = groups.kind[other]
        sees = seen(self.order, kind, y + delta * self.order.tasks, groups.worker[write])
        self._clash(sees <= self.index[x], _Side(x, write), _Side(y, other), delta)

    def _write_last(self, write: Ints, other: Ints, delta: int) -> None:
        """The last access of a group at step 0 against the first write of the other ``delta`` steps later."""
        groups = self.groups
        x, y = groups.task[groups.end[other] - 1], groups.task[groups.start[write]]
        self.context.counts["checks"] += len(x)
        sees = self.order.before_write(y + delta * self.order.tasks, groups.worker[other])
        self._clash(sees <= self.index[x], _Side(x, other), _Side(y, write), delta)

    def _clash(self, bad: Bools, first: _Side, second: _Side, delta: int) -> None:
        """Report the rows that are ``bad``: the first access at step t and the second ``delta`` steps later."""
        rows = np.flatnonzero(bad)
        for number, row in enumerate(rows.tolist()):
            one, two = self._access(first, row), self._access(second, row)
            rule = stream.RULE if max(one[1], two[1]) >= STREAM else RULE
            if self.report.full(rule):
                self.report.more(rule, len(rows) - number)
                return
            what, mend = tell_clash(self.context, Clash(found=self.found, first=one, second=two, delta=delta))
            self.report.add(rule, what, mend=mend)

    def _access(self, side: _Side, row: int) -> tuple[int, int, int]:
        group = side.group[row]
        return int(side.task[row]), int(self.groups.kind[group]), int(self.groups.box[group])

    def _beyond_window(self) -> None:
        """What no window decides: only writes of one worker, and what never shares a word, are known to be safe."""
        groups, sight = self.groups, self.context.sight
        if sight.exact and (sight.streams_exact or not self.found.stream_kinds):
            return
        boxes = may_meet(self.found.table, self.found.write_boxes, self.all_boxes, self.context.reach)
        for write, other in self._group_pairs(*boxes):
            undecided = (groups.worker[write] != groups.worker[other]) | (groups.kind[other] != WRITE)
            if sight.exact:
                undecided &= groups.kind[other] >= STREAM
            for row in np.flatnonzero(undecided)[:1].tolist():
                x, y = int(groups.task[groups.start[write[row]]]), int(groups.task[groups.start[other[row]]])
                one = f"{self.program.describe(x)} writes {self.found.show(int(groups.box[write[row]]))}"
                does, box = verb(int(groups.kind[other[row]])), self.found.show(int(groups.box[other[row]]))
                window.leave_open(self.context, self.report, f"{one} and {self.program.describe(y)} {does} {box}")
                return
