"""The order relations -> and ~> over a window of D steps, as vector clocks.

    x -> y holds iff y is not ready in Run({x}).

Let G be a relation that contains queue order. G is sound if every wait edge (x, y) through (c, K) has fewer than K
signals e of c, over all steps of the window, with not x <=_G e: then y cannot pass the wait before x is published.
Support may be circular, and the greatest such G is the relation itself. Since G contains queue order it is a vector
per instance: ``clock[y][w]`` = how many instances at the front of worker w's queue are published before y is.

    clock[y] = max(own position + 1, clock of the queue predecessor,
                   for each wait (c, K) the componentwise K-th smallest clock over the signals of c)

iterated down from the top, in firing order, until nothing changes.

On one worker, x_i -> x_j (x_j's reads see x_i's writes) iff j - i > d, or some task in (i, j] has a counter wait
that fails in Run({x_i}): the maximum of the waits' own components along the queue.

Streams begin when their producer lets them (``producer``), which follows gates and nothing else.

    C(D): for each worker, with its last task of step 0 withheld, D steps of Run leave no head and no stream of
    step D ready.

If C(D) holds, pairs D or more steps apart are ordered, and the D-step window decides x@0 against y@0 .. y@(D-1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from amk.validator.firing import run
from amk.validator.producer import Producers
from amk.validator.program import Ints, Need, Program
from amk.validator.supply import TOP, Clock, supplies

Key = tuple[int, int]


class TooManySweepsError(Exception):
    """The clocks did not settle within the budget; nothing is claimed."""


SWEEPS_MAX: Final = 256


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """Instances that fire together, with what their clocks are made of."""

    instances: Ints
    before: Ints  # queue predecessors; the row past the last stands for none
    workers: Ints
    positions: Ints
    waits: list[tuple[Key, Ints]]  # (counter, K) and the rows of the level that wait for it


class Order:
    """-> of ``program`` over ``steps`` steps; ~> if the program carries its tag waits.

    Attributes
    ----------
    rank
        Per task: its level in the firing of step 0. If x -> y in a step then rank[x] < rank[y].
    """

    def __init__(self, program: Program, steps: int, drift: int) -> None:
        self.program = program
        self.steps = steps
        self.drift = drift
        self.tasks = program.tasks
        self._length = np.array(program.length, np.int64)
        rows = steps * self.tasks
        self.clock: Clock = np.full((rows + 1, program.workers), TOP, np.int32)
        self.clock[rows] = 0
        self._waited: Clock = np.full(rows + 1, TOP, np.int32)  # own component of the waits, along the queue
        self._waited[rows] = 0
        self._supplies = supplies(program, steps)
        self._support: dict[Key, Clock] = {}
        firing = run(program, steps)
        self.rank = np.full(self.tasks, len(firing.levels), np.int64)
        for number, level in enumerate(firing.levels):
            here = np.array(level)
            self.rank[here[here < self.tasks]] = number
        self._settle([self._level(level) for level in firing.levels])
        self._reading = self._drifted()
        self.producers = Producers(program, steps, lambda need, step: self._supported(self._key(need, step)))

    # --- clocks ------------------------------------------------------------------------------------------------------

    def _key(self, need: Need, step: int) -> Key:
        return need.counter, need.threshold + step * self.program.per_step[need.counter]

    def _level(self, level: list[int]) -> _Level:
        instances = np.array(level, np.int64)
        step, task = np.divmod(instances, self.tasks)
        workers, index = self.program.worker[task], self.program.index[task]
        positions = step * self._length[workers] + index
        last_before = instances - self.tasks + self._length[workers] - 1  # of the step before, when index is 0
        before = np.where(index > 0, instances - 1, last_before)
        before[positions == 0] = self.steps * self.tasks
        waits: dict[Key, list[int]] = {}
        for row, (at, name) in enumerate(zip(step.tolist(), task.tolist(), strict=True)):
            for need in self.program.waits[name]:
                key = self._key(need, at)
                if key[1] > 0:
                    waits.setdefault(key, []).append(row)
        return _Level(instances, before, workers, positions, [(key, np.array(rows)) for key, rows in waits.items()])

    def _supported(self, key: Key) -> Clock:
        """What must precede a wait for K signals of a counter."""
        found = self._support.get(key)
        if found is None:
            counter, need = key
            found = self._supplies[counter].before(need, self.clock) if need > 0 else self.clock[-1]
            self._support[key] = found
        return found

    def _settle(self, levels: list[_Level]) -> None:
        for _ in range(SWEEPS_MAX):
            self._support.clear()
            for supply in self._supplies:
                supply.restart()
            changed = False
            for level in levels:
                changed |= self._lower(level)
            if not changed:
                return
        raise TooManySweepsError(f"the order relation did not settle in {SWEEPS_MAX} sweeps")

    def _lower(self, level: _Level) -> bool:
        clocks = self.clock[level.before]
        waited = self._waited[level.before]
        for key, rows in level.waits:
            support = self._supported(key)
            clocks[rows] = np.maximum(clocks[rows], support)
            waited[rows] = np.maximum(waited[rows], support[level.workers[rows]])
        clocks[np.arange(len(clocks)), level.workers] = level.positions + 1
        same = np.array_equal(clocks, self.clock[level.instances])
        same &= np.array_equal(waited, self._waited[level.instances])
        self.clock[level.instances] = clocks
        self._waited[level.instances] = waited
        return not same

    def _drifted(self) -> Clock:
        """The clocks, each instance's own component as its reads see it."""
        instances = np.arange(self.steps * self.tasks)
        step, task = np.divmod(instances, self.tasks)
        own = self.program.worker[task]
        position = step * self._length[own] + self.program.index[task]
        clock = self.clock[:-1].copy()
        clock[instances, own] = np.maximum(position - self.drift, self._waited[instances])
        return clock

    # --- questions: how many of worker w's first instances precede this access? --------------------------------------

    def before_write(self, instances: Ints, workers: Ints) -> Clock:
        """Instances of each worker all of whose accesses precede the writes of each instance (its own included)."""
        return self.clock[instances, workers]

    def before_read(self, instances: Ints, workers: Ints) -> Clock:
        """Instances of each worker whose writes the reads of each instance see."""
        return self._reading[instances, workers]

    # --- the window --------------------------------------------------------------------------------------------------

    def heads_joined(self, *, reads_data: bool) -> bool:
        """C(D), of heads. ``reads_data``: warps that drift matter (->); else only publications do (~>)."""
        busy = self._length > 0
        heads = (self._head(worker, drifts=reads_data) for worker in np.flatnonzero(busy).tolist())
        return all((head[busy] >= self._length[busy]).all() for head in heads)

    def streams_joined(self, mattering: frozenset[tuple[int, int]]) -> bool:
        """C(D), of streams: those, as (task, number), from buffers that are written in the launch."""
        busy = self._length > 0
        clocks = (self.producers.next_step(worker, mattering) for worker in np.flatnonzero(busy).tolist())
        return all((clock[busy] >= self._length[busy]).all() for clock in clocks if clock is not None)

    def _head(self, worker: int, *, drifts: bool) -> Clock:
        """The clock of a worker's first task at step D, of which no other task has fired."""
        first, length = self.program.first[worker], self.program.length[worker]
        last = (self.steps - 1) * self.tasks + first + length - 1
        support = [self._supported(self._key(need, self.steps)) for need in self.program.waits[first]]
        clock: Clock = np.maximum.reduce([self.clock[last], *support])
        if drifts:
            own = [self.steps * length - self.drift, self._waited[last], *(row[worker] for row in support)]
            clock[worker] = max(own)
        return clock


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Window:
    """An order and what it decides.

    Attributes
    ----------
    exact
        Accesses by tasks, at every distance; else only in a launch of ``order.steps`` steps.
    streams_exact
        Accesses by producers likewise.
    """

    order: Order
    exact: bool
    streams_exact: bool


STEPS_MIN: Final = 2
STEPS_MAX: Final = 4


def window(
    program: Program, *, steps_max: int, drift: int, mattering: frozenset[tuple[int, int]], reads_data: bool = True
) -> Window:
    """The smallest window that decides ``program`` for every number of steps up to ``steps_max``.

    ``mattering`` holds the streams, as (task, number), from buffers that are written in the launch.
    """
    steps = STEPS_MIN
    while True:
        order = Order(program, min(steps, steps_max), drift)
        whole = steps >= steps_max
        exact = whole or order.heads_joined(reads_data=reads_data)
        streams = whole or (exact and order.streams_joined(mattering))
        if (exact and streams) or steps == STEPS_MAX:
            return Window(order=order, exact=exact, streams_exact=streams)
        steps += 1
