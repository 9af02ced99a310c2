"""sync: Assigned -> Schedule. Order the tasks with counters, and nothing more than needs ordering.

A tagged word says itself when it is written. For what is plain its hop has a counter: all tasks of the hop signal it,
and a task that reads from the hop waits for all of them. Every queue opens with a Begin that waits for the last step's
sampler. The counter of the last hop before the sampler is the step join: the last task of every worker signals it, so
that no worker is ever two steps ahead of another.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from amk.ir.buffers import Operand
from amk.ir.passes.assign import Assigned, Placed
from amk.ir.regions import POS, TOKENS
from amk.ir.schedule import SCHEDULE_VERSION, Counter, Queue, Schedule, Stream, Symbol, Task, Wait
from amk.ir.tasks import AnyKind, Begin, Buffers
from amk.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """The pass has no options: the order that a step needs is not a matter of taste."""

    def run(self, assigned: Assigned, target: Target) -> Schedule:
        """The finished schedule of ``assigned``."""
        return _Syncer(assigned, target).schedule()


class _Syncer:
    def __init__(self, assigned: Assigned, target: Target) -> None:
        self.assigned = assigned
        self.target = target
        self.buffers: Buffers = {buffer.id: buffer for buffer in assigned.buffers}
        self.queues: list[list[Placed]] = [[] for _ in range(assigned.workers)]
        for task in assigned.tasks:
            self.queues[task.worker].append(task)
        self.sampler = len(assigned.hops) - 1
        self.join = self.sampler - 1
        self.step_done = Wait(counter=assigned.hops[self.sampler], threshold=0)
        self.signals: defaultdict[int, int] = defaultdict(int)
        for task in assigned.tasks:
            self.signals[task.hop] += 1
        # Workers with no task in the last hop join the step by their last task, whatever it is.
        self.joiners = {self.last(worker) for worker in range(assigned.workers)} - self.in_join_hop()
        self.signals[self.join] += len(self.joiners)
        self.source = self.sources()
        self.counted = {self.sampler, self.join, *self.source} - {None}

    def last(self, worker: int) -> str:
        """The worker's last task before the sampler; its Begin if it has none."""
        ids = [task.id for task in self.queues[worker] if task.hop != self.sampler]
        return ids[-1] if ids else _begin_id(worker)

    def in_join_hop(self) -> set[str]:
        return {task.id for task in self.assigned.tasks if task.hop == self.join}

    def sources(self) -> list[int | None]:
        """For each hop the latest one that it reads plain data of this step from; all before that are joined by it."""
        writer: dict[tuple[str, int], int] = {}
        found: list[int | None] = [None] * len(self.assigned.hops)
        for task in self.assigned.tasks:
            for access in task.op.reads(self.buffers):
                source = writer.get((access.region.buffer, access.version))
                if source is not None and access.lag == 0 and not self.buffers[access.region.buffer].tagged:
                    found[task.hop] = max(source, found[task.hop] or 0)
            writer |= {(access.region.buffer, access.version): task.hop for access in task.op.writes(self.buffers)}
        return found

    def schedule(self) -> Schedule:
        tasks: list[Task] = []
        queues: list[Queue] = []
        for worker, placed in enumerate(self.queues):
            queue = [self.begin(worker), *self.queue(placed)]
            tasks += queue
            queues.append(Queue(index=worker, tasks=tuple(task.id for task in queue)))
        return Schedule(
            version=SCHEDULE_VERSION,
            target=self.target,
            symbols=(
                Symbol(name=POS, low=0, high=self.assigned.max_context - 1),
                Symbol(name=TOKENS, low=1, high=self.assigned.tokens_per_pass),
            ),
            buffers=self.assigned.buffers,
            counters=tuple(Counter(id=hop) for number, hop in enumerate(self.assigned.hops) if number in self.counted),
            tasks=tuple(tasks),
            queues=tuple(queues),
            max_context=self.assigned.max_context,
            steps_max=self.assigned.max_context,
        )

    def begin(self, worker: int) -> Task:
        return self.task(_begin_id(worker), Begin(stop=Operand(buffer="stop", lag=1)), (self.step_done,), ())

    def queue(self, placed: list[Placed]) -> list[Task]:
        waited: set[Wait] = set()
        tasks = []
        for task in placed:
            need = self.wait_before(task.hop)
            # A worker's later tasks are behind every wait of its earlier ones.
            waits = () if need is None or need in waited else (need,)
            waited.update(waits)
            signals = (self.assigned.hops[task.hop],) if task.hop in self.counted else ()
            tasks.append(self.task(task.id, task.op, waits, signals))
        return tasks

    def wait_before(self, hop: int) -> Wait | None:
        """Join the hop that this one reads plain data from; the worker's Begin is behind the last step already."""
        source = self.source[hop]
        return None if source is None else Wait(counter=self.assigned.hops[source], threshold=self.signals[source])

    def task(self, name: str, op: AnyKind, waits: tuple[Wait, ...], signals: tuple[str, ...]) -> Task:
        if name in self.joiners:
            signals = (*signals, self.assigned.hops[self.join])
        return Task(
            id=name,
            op=op,
            reads=op.reads(self.buffers),
            writes=op.writes(self.buffers),
            streams=tuple(
                Stream(region=region, gate=(self.step_done,) if self.buffers[region.buffer].kind == "kv" else ())
                for region in op.streams(self.buffers)
            ),
            waits=waits,
            signals=signals,
        )


def _begin_id(worker: int) -> str:
    return f"begin#{worker}"
