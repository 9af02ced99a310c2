"""Runs a Schedule task by task on the CPU, in any order its queues and waits allow.

A task runs whole. With a seed, the next worker is drawn at random among those whose next task is ready, so that
different seeds give different legal orders; the answer must not depend on it. Without one, a worker runs on until it
blocks, which is quick. Workers may be in different steps of the launch.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from amk.interpreter.errors import BadLaunchError, MachineStuckError
from amk.interpreter.memory import Memory
from amk.interpreter.semantics import Step, compile_task
from amk.ir.regions import TOKENS
from amk.ir.schedule import Schedule, Task, Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a launch did: steps finished by all workers, tasks run, and a digest of the order they ran in."""

    steps: int
    tasks: int
    digest: str


@dataclass(slots=True, kw_only=True)
class _Worker:
    """A worker in the middle of a launch: the next task is ``position`` in its queue, at ``step``."""

    index: int
    step: int = 0
    position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """A task made ready to run: its waits and gates as (counter, threshold, signals a step)."""

    name: str
    run: Step
    waits: tuple[tuple[int, int, int], ...]
    signals: tuple[int, ...]


class Machine:
    """A schedule and its memory.

    Parameters
    ----------
    schedule
        Any schedule; the machine itself proves nothing.
    memory
        A tensor a buffer, see ``memory.allocate``. The caller sets inputs and the launch state in it.
    seed
        None for the quick order, else the seed of the random one.
    """

    def __init__(self, schedule: Schedule, memory: Memory, *, seed: int | None = None) -> None:
        self.schedule = schedule
        self.memory = memory
        self._random = random.Random(seed) if seed is not None else None
        self._index = {counter.id: number for number, counter in enumerate(schedule.counters)}
        self._per_step = [schedule.signals_per_step[counter.id] for counter in schedule.counters]
        self._count_tags()
        self._queues = [[self._item(name) for name in queue.tasks] for queue in schedule.queues]

    def _item(self, name: str) -> _Item:
        task = self.schedule.task[name]
        gates = (wait for stream in task.streams for wait in stream.gate)
        waits = dict.fromkeys(self._wait(wait) for wait in (*task.waits, *gates))
        waits |= dict.fromkeys(self._tag_waits(task))
        signals = [self._index[counter] for counter in task.signals]
        signals += [self._index[version] for version in self._versions(task)]
        return _Item(name=name, run=compile_task(task.op, self.memory), waits=tuple(waits), signals=tuple(signals))

    def _wait(self, wait: Wait) -> tuple[int, int, int]:
        number = self._index[wait.counter]
        return number, wait.threshold, self._per_step[number]

    def _count_tags(self) -> None:
        """Let each version of a tagged buffer count the tasks that write it."""
        tasks = [self.schedule.task[name] for queue in self.schedule.queues for name in queue.tasks]
        written = Counter(version for task in tasks for version in self._versions(task))
        read = (version for task in tasks for version, _ in self._tags_read(task))
        for version in dict.fromkeys((*written, *read)):
            self._index[version] = len(self._per_step)
            self._per_step.append(written[version])

    def _versions(self, task: Task) -> list[str]:
        """The versions of tagged buffers that a task writes."""
        written = {(access.region.buffer, access.version) for access in task.writes}
        return [_version(name, version) for name, version in sorted(written) if self.schedule.buffer[name].tagged]

    def _tags_read(self, task: Task) -> Iterator[tuple[str, int]]:
        """The versions of tagged buffers that a task reads, and of how many steps before."""
        for access in task.reads:
            if self.schedule.buffer[access.region.buffer].tagged:
                yield _version(access.region.buffer, access.version), access.lag

    def _tag_waits(self, task: Task) -> Iterator[tuple[int, int, int]]:
        """A read of tagged words, as a wait for all that write their version; for one at least."""
        for version, lag in self._tags_read(task):
            number = self._index[version]
            each = max(1, self._per_step[number])
            yield number, each * (1 - lag), each

    def launch(self, *, pos: int, tokens: int, steps: int) -> Order:
        """Run ``steps`` steps of ``tokens`` rows from position ``pos``, or fewer if a step sets ``stop``.

        Raises
        ------
        BadLaunchError
            The schedule does not cover such a launch.
        MachineStuckError
            No worker can go on: the schedule deadlocks.
        """
        high = self.schedule.symbol(TOKENS).high
        if not (1 <= tokens <= high and steps >= 1 and 0 <= pos <= self.schedule.max_context - steps * tokens):
            raise BadLaunchError(pos=pos, tokens=tokens, steps=steps, high=high, context=self.schedule.max_context)
        counters = [0] * len(self._index)
        blocked: defaultdict[int, list[_Worker]] = defaultdict(list)
        ready = [_Worker(index=index) for index, queue in enumerate(self._queues) if queue]
        trace = hashlib.sha256()
        left: list[int] = []
        ran = 0
        while ready:
            slot = self._random.randrange(len(ready)) if self._random else -1
            worker = ready[slot]
            item = self._queues[worker.index][worker.position]
            lacking = _lacking(item, worker.step, counters)
            if lacking is not None:
                ready[slot] = ready[-1]
                ready.pop()
                blocked[lacking].append(worker)
                continue
            leave = item.run(pos + worker.step * tokens, tokens)
            if not leave:
                ran += 1
                trace.update(f"{item.name}@{worker.step};".encode())
                for counter in item.signals:
                    counters[counter] += 1
                    ready += blocked.pop(counter, ())
            if leave or self._finished(worker, steps):
                left.append(worker.step)
                ready.remove(worker)
        if any(blocked.values()):
            raise self._stuck([worker for workers in blocked.values() for worker in workers], counters)
        return Order(steps=min(left, default=steps), tasks=ran, digest=trace.hexdigest())

    def _finished(self, worker: _Worker, steps: int) -> bool:
        """Move on to the worker's next task; True past the last step."""
        worker.position += 1
        if worker.position == len(self._queues[worker.index]):
            worker.position = 0
            worker.step += 1
        return worker.step == steps

    def _stuck(self, workers: list[_Worker], counters: list[int]) -> MachineStuckError:
        names = list(self._index)
        lines = []
        for worker in workers[:5]:
            item = self._queues[worker.index][worker.position]
            counter, threshold, each = next(w for w in item.waits if counters[w[0]] < w[1] + worker.step * w[2])
            goal = threshold + worker.step * each
            lines.append(
                f"{item.name} (worker {worker.index}) waits for {names[counter]}={goal}, {counters[counter]} now"
            )
        more = f" and {len(workers) - 5} more" if len(workers) > 5 else ""
        return MachineStuckError(step=min(worker.step for worker in workers), blocked="; ".join(lines) + more)


def _version(buffer: str, version: int) -> str:
    return f"{buffer} v{version}"


def _lacking(item: _Item, step: int, counters: list[int]) -> int | None:
    """A counter that the task still waits for at ``step``; None when it is ready."""
    for counter, threshold, each in item.waits:
        if counters[counter] < threshold + step * each:
            return counter
    return None
