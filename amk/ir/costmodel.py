"""The cost model that ``timeline`` plays a schedule against. Its assumptions are listed there."""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from amk.errors import ScheduleFileError
from amk.ir.regions import POS, TOKENS
from amk.ir.schedule import Schedule, Task, Wait

# What a wait is on: (counter, -1), or the writes of one version of a tagged buffer, (buffer, version).
Key = tuple[str, int]
Need = tuple[Key, int]
Moment = float | None

COUNTER: Final = -1


class UntimeableScheduleError(ScheduleFileError):
    """A file that reads as a schedule, but names what it does not declare, or a chip that cannot be."""

    code = "AMK-S410"
    what = "the schedule cannot be timed: {why}"
    mend = "run `amk validate` on it: it names the rules that the schedule breaks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A task as the model sees it: bytes through the ring, time of its activations, what it needs and what it signals.

    ``gates`` are needs of the producer; they are among ``needs`` too.
    """

    id: str
    stream_bytes: int
    activations_us: float
    needs: tuple[Need, ...]
    gates: tuple[Need, ...]
    signals: tuple[Key, ...]


class Planner:
    """Looks up what the tasks of a schedule name."""

    def __init__(self, schedule: Schedule, *, pos: int, tokens: int) -> None:
        self.schedule = schedule
        self.env = {POS: pos, TOKENS: tokens}
        self.bytes_per_us = bytes_per_us(schedule)
        self.counters = {counter.id for counter in schedule.counters}
        self.tagged = {buffer.id for buffer in schedule.buffers if buffer.tagged}
        self.per_step: defaultdict[Key, int] = defaultdict(int)
        for queue in schedule.queues:
            for name in queue.tasks:
                for key in self.signals(self.declared(name)):
                    self.per_step[key] += 1

    def queues(self) -> list[list[Planned]]:
        """Each worker's tasks in order."""
        return [[self.planned(self.declared(name)) for name in queue.tasks] for queue in self.schedule.queues]

    def declared(self, name: str) -> Task:
        if name not in self.schedule.task:
            raise UntimeableScheduleError(why=f"a queue names the task {name!r}, which is not declared")
        return self.schedule.task[name]

    def planned(self, task: Task) -> Planned:
        try:
            cost = task.op.cost(self.schedule.buffer, self.env)
            activations_us = max(0, cost.read_bytes + cost.write_bytes) / self.bytes_per_us
            float(cost.stream_bytes)
        except (KeyError, IndexError, ZeroDivisionError, OverflowError) as error:
            why = f"the task {task.id!r} has no cost: {type(error).__name__} {error}"
            raise UntimeableScheduleError(why=why) from error
        gates = tuple(self.need(task, wait) for stream in task.streams for wait in stream.gate)
        waits = tuple(self.need(task, wait) for wait in task.waits)
        return Planned(
            id=task.id,
            stream_bytes=max(0, cost.stream_bytes),
            activations_us=activations_us,
            needs=tuple(dict.fromkeys((*waits, *gates, *self.tags(task)))),
            gates=tuple(dict.fromkeys(gates)),
            signals=tuple(self.signals(task)),
        )

    def need(self, task: Task, wait: Wait) -> Need:
        if wait.counter not in self.counters:
            raise UntimeableScheduleError(why=f"{task.id!r} waits on {wait.counter!r}, which is not declared")
        return (wait.counter, COUNTER), wait.threshold

    def tags(self, task: Task) -> Iterator[Need]:
        """A read of a tagged buffer, as a wait for the writers of its version in this step or the one before."""
        for read in task.reads:
            if read.region.buffer in self.tagged:
                key = (read.region.buffer, read.version)
                yield key, self.per_step[key] * (1 - read.lag)

    def signals(self, task: Task) -> Iterator[Key]:
        yield from ((counter, COUNTER) for counter in task.signals)
        yield from {(write.region.buffer, write.version) for write in task.writes if write.region.buffer in self.tagged}


def bytes_per_us(schedule: Schedule) -> float:
    """A worker's share of the chip's bandwidth."""
    target = schedule.target
    if target.bandwidth_bytes_per_s <= 0 or target.workers <= 0 or not 0 <= target.hop_us < 1e9:
        raise UntimeableScheduleError(why=f"the chip {target.name!r} has no bandwidth, no workers or no hop time")
    return target.bandwidth_bytes_per_s / target.workers / 1e6


@dataclass(slots=True)
class Ring:
    """A worker's producer: how far it has come at what time. Positions count the worker's streamed bytes.

    Attributes
    ----------
    limit
        The position that the ring's capacity lets it reach.
    gates
        Positions that it may not pass before the moment that the function gives; None while that is not known.
    """

    bytes_per_us: float
    capacity: int
    limit: float
    time_us: float = 0.0
    position: float = 0.0
    gates: deque[tuple[int, Callable[[], Moment]]] = field(default_factory=deque)

    def consume(self, now: float, upto: int) -> float:
        """The consumers begin, at ``now``, the task whose bytes end at ``upto``; when is the last of those there?"""
        self._fill(until=now)
        self.limit = upto + self.capacity
        if self.position >= upto:
            return now
        self._fill(goal=upto)
        return self.time_us

    def _fill(self, *, until: float = float("inf"), goal: float = float("inf")) -> None:
        goal = min(goal, self.limit)
        while self.time_us < until and self.position < goal:
            stop = goal
            if self.gates:
                at, opens = self.gates[0]
                if at <= self.position:
                    moment = opens()
                    if moment is None:
                        break
                    self.time_us = max(self.time_us, moment)
                    self.gates.popleft()
                    continue
                stop = min(goal, at)
            there = self.time_us + (stop - self.position) / self.bytes_per_us
            if there > until:
                self.position += (until - self.time_us) * self.bytes_per_us
                self.time_us = until
            else:
                self.time_us, self.position = there, stop
        if until < float("inf"):  # stood still for want of room or behind a gate
            self.time_us = max(self.time_us, until)


@dataclass(slots=True)
class _Worker:
    index: int
    program: list[Planned]
    ring: Ring
    ends_at: list[int]
    free_us: float = 0.0
    played: list[tuple[float, float]] = field(default_factory=list)


class Player:
    """The workers of a schedule, their rings and their signals, in time order.

    Attributes
    ----------
    queues
        One step of each worker.
    """

    def __init__(self, schedule: Schedule, *, pos: int, tokens: int, steps: int) -> None:
        planner = Planner(schedule, pos=pos, tokens=tokens)
        self.queues = planner.queues()
        self.per_step = planner.per_step
        self.hop_us = schedule.target.hop_us
        self.arrived: defaultdict[Key, list[tuple[float, int]]] = defaultdict(list)
        self.asleep: defaultdict[Need, list[_Worker]] = defaultdict(list)
        self.events: list[tuple[float, bool, int]] = []
        capacity = max(1, schedule.target.stages * schedule.target.stage_bytes)
        self.workers = [self.worker(n, steps, capacity, planner.bytes_per_us) for n in range(len(self.queues))]

    def worker(self, index: int, steps: int, capacity: int, bytes_per_us: float) -> _Worker:
        ring = Ring(bytes_per_us=bytes_per_us, capacity=capacity, limit=capacity)
        ends_at, position = [], 0
        for step in range(steps):
            for task in self.queues[index]:
                if task.gates and task.stream_bytes:
                    ring.gates.append((position, partial(self.met, task.gates, index, step)))
                position += task.stream_bytes
                ends_at.append(position)
        return _Worker(index=index, program=self.queues[index] * steps, ring=ring, ends_at=ends_at)

    def play(self) -> None:
        """Run until every queue is done or nothing moves any more."""
        for worker in self.workers:
            self.advance(worker)
        while self.events:
            now, starts, index = heapq.heappop(self.events)
            worker = self.workers[index]
            number = len(worker.played)
            if starts:
                there = worker.ring.consume(now, worker.ends_at[number])
                end = max(there, now + worker.program[number].activations_us)
                worker.played.append((now, end))
                heapq.heappush(self.events, (end, False, index))
            else:
                worker.free_us = now
                self.signal(worker, worker.program[number - 1].signals, now)
                self.advance(worker)

    def advance(self, worker: _Worker) -> None:
        """Start the worker's next task as soon as what it needs is there; sleep on what is still to come."""
        if len(worker.played) == len(worker.program):
            return
        missing = self.missing(worker)
        if missing is not None:
            self.asleep[missing].append(worker)
            return
        start = self.met(worker.program[len(worker.played)].needs, worker.index, self.step_of(worker))
        assert start is not None
        heapq.heappush(self.events, (max(start, worker.free_us), True, worker.index))

    def signal(self, worker: _Worker, keys: tuple[Key, ...], now: float) -> None:
        for key in keys:
            self.arrived[key].append((now, worker.index))
            for sleeper in self.asleep.pop((key, len(self.arrived[key])), ()):
                self.advance(sleeper)

    def step_of(self, worker: _Worker) -> int:
        """The step of the worker's next task."""
        return len(worker.played) // max(1, len(self.queues[worker.index]))

    def missing(self, worker: _Worker) -> Need | None:
        """The first of the next task's needs that has not come, counted over all steps."""
        for need in worker.program[len(worker.played)].needs:
            count = self.count(need, self.step_of(worker))
            if count > len(self.arrived[need[0]]):
                return need[0], count
        return None

    def count(self, need: Need, step: int) -> int:
        key, threshold = need
        return threshold + step * self.per_step[key]

    def met(self, needs: tuple[Need, ...], worker: int, step: int) -> Moment:
        """When the last of ``needs`` reaches the worker; None if that is not known yet."""
        last = 0.0
        for need in needs:
            arrived, count = self.arrived[need[0]], self.count(need, step)
            if count > len(arrived):
                return None
            for moment, signaller in reversed(arrived[: max(0, count)]):
                last = max(last, moment + (self.hop_us if signaller != worker else 0.0))
                if signaller != worker:  # those before it came earlier and no farther
                    break
        return last
