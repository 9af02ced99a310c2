"""What ``amk inspect`` has to say, as records that it prints or writes as JSON."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from amk.cli.inspect_page.describe import kind_of, parameters, printable, role_of, show_access, show_wait
from amk.ir.schedule import Schedule, Task, Wait
from amk.ir.timeline import HopSpan, Span, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferTotal:
    """The buffers of one kind."""

    kind: str
    count: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleTotal:
    """Hops that do the same in each layer. ``wait_us`` is the mean over tasks, ``adds_us`` their share of the step."""

    role: str
    hops: int
    tasks: int
    bytes: int
    wait_us: float
    adds_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What the cost model says of a step: see ``amk.ir.timeline``."""

    pos: int
    tokens: int
    step_us: float
    floor_us: float
    bytes: int
    stuck: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A schedule at a glance."""

    path: str
    digest: str
    target: str
    arch: str
    workers: int
    devices: int
    max_context: int
    steps_max: int
    ring_stages: int
    ring_stage_bytes: int
    tasks: int
    tasks_by_kind: dict[str, int]
    counters: int
    waits: int
    signals: int
    buffers: tuple[BufferTotal, ...]
    estimate: Estimate
    roles: tuple[RoleTotal, ...]
    hops: tuple[HopSpan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitReport:
    """A wait, the tasks whose signals it counts, and of those the last to come. None come from the step before."""

    counter: str
    threshold: int
    signals_per_step: int
    signallers: tuple[str, ...]
    last: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """One task, readably. ``start_us`` and those after it are estimates; None of a task that never starts."""

    id: str
    kind: str
    worker: int
    place: int
    parameters: dict[str, str]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    streams: tuple[str, ...]
    waits: tuple[WaitReport, ...]
    signals: tuple[str, ...]
    bytes: int
    start_us: float | None
    end_us: float | None
    wait_us: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReport:
    """One worker's queue."""

    worker: int
    device: int
    index: int
    tasks: tuple[TaskReport, ...]


def summarise(schedule: Schedule, timeline: Timeline, *, path: str) -> Summary:
    """The schedule at a glance."""
    target = schedule.target
    return Summary(
        path=path,
        digest=schedule.digest(),
        target=printable(target.name),
        arch=printable(target.arch),
        workers=len(schedule.queues),
        devices=schedule.devices,
        max_context=schedule.max_context,
        steps_max=schedule.steps_max,
        ring_stages=target.stages,
        ring_stage_bytes=target.stage_bytes,
        tasks=len(schedule.tasks),
        tasks_by_kind=dict(Counter(kind_of(task) for task in schedule.tasks)),
        counters=len(schedule.counters),
        waits=sum(len(task.waits) for task in schedule.tasks),
        signals=sum(len(task.signals) for task in schedule.tasks),
        buffers=_buffers(schedule),
        estimate=Estimate(
            pos=timeline.pos,
            tokens=timeline.tokens,
            step_us=timeline.step_us,
            floor_us=timeline.floor_us,
            bytes=timeline.bytes,
            stuck=tuple(printable(f"{stuck.task} waits for {stuck.waits_for}") for stuck in timeline.stuck),
        ),
        roles=_roles(timeline),
        hops=timeline.hops,
    )


def _buffers(schedule: Schedule) -> tuple[BufferTotal, ...]:
    sizes: defaultdict[str, list[int]] = defaultdict(list)
    for buffer in schedule.buffers:
        sizes[buffer.kind].append(buffer.bytes)
    return tuple(BufferTotal(kind=kind, count=len(found), bytes=sum(found)) for kind, found in sorted(sizes.items()))


def _roles(timeline: Timeline) -> tuple[RoleTotal, ...]:
    groups: defaultdict[str, list[tuple[HopSpan, float]]] = defaultdict(list)
    reached = 0.0
    for hop in timeline.hops:
        groups[role_of(hop.hop)].append((hop, max(0.0, hop.end_us - reached)))
        reached = max(reached, hop.end_us)
    return tuple(
        RoleTotal(
            role=printable(role),
            hops=len(group),
            tasks=(tasks := sum(hop.tasks for hop, _ in group)),
            bytes=sum(hop.bytes for hop, _ in group),
            wait_us=sum(hop.wait_us * hop.tasks for hop, _ in group) / tasks,
            adds_us=sum(adds for _, adds in group),
        )
        for role, group in groups.items()
    )


class Tasks:
    """Looks up a schedule's tasks with their estimated times."""

    def __init__(self, schedule: Schedule, timeline: Timeline) -> None:
        self.schedule = schedule
        self.spans = {span.task: span for span in timeline.spans}
        self.signallers: defaultdict[str, list[Task]] = defaultdict(list)
        for task in schedule.tasks:
            for counter in task.signals:
                self.signallers[counter].append(task)

    def queue(self, worker: int) -> QueueReport:
        """The queue at this place among the schedule's."""
        queue = self.schedule.queues[worker]
        tasks = tuple(self.report(name, worker, place) for place, name in enumerate(queue.tasks))
        return QueueReport(worker=worker, device=queue.device, index=queue.index, tasks=tasks)

    def find(self, name: str) -> TaskReport | None:
        """The task with this id, or None if no queue has it."""
        for worker, queue in enumerate(self.schedule.queues):
            if name in queue.tasks:
                return self.report(name, worker, queue.tasks.index(name))
        return None

    def report(self, name: str, worker: int, place: int) -> TaskReport:
        task, span = self.schedule.task[name], self.spans.get(name)
        buffers = self.schedule.buffer
        return TaskReport(
            id=printable(task.id),
            kind=kind_of(task),
            worker=worker,
            place=place,
            parameters=dict(parameters(task.op, buffers)),
            reads=tuple(show_access(read, buffers) for read in task.reads),
            writes=tuple(show_access(write, buffers) for write in task.writes),
            streams=tuple(show_access(stream, buffers) for stream in task.streams),
            waits=tuple(self.wait(wait) for wait in task.waits),
            signals=tuple(printable(counter) for counter in task.signals),
            bytes=span.bytes if span else 0,
            start_us=span.start_us if span else None,
            end_us=span.end_us if span else None,
            wait_us=span.wait_us if span else None,
        )

    def wait(self, wait: Wait) -> WaitReport:
        spans = [self.spans.get(task.id) for task in self.signallers[wait.counter]] if wait.threshold > 0 else []
        known: list[Span] = sorted((span for span in spans if span), key=lambda span: (span.end_us, span.task))
        counted = known[: max(0, wait.threshold)]
        return WaitReport(
            counter=printable(wait.counter),
            threshold=wait.threshold,
            signals_per_step=self.schedule.signals_per_step.get(wait.counter, 0),
            signallers=tuple(printable(span.task) for span in counted),
            last=printable(counted[-1].task) if counted else None,
        )


def show_wait_report(wait: WaitReport) -> str:
    """A wait and who meets it: ``L0.o >= 72, from 72 signals, by estimate the last of L0.o#7``."""
    text = show_wait(Wait(counter=wait.counter, threshold=wait.threshold))
    if wait.threshold <= 0:
        return f"{text}, from the step before"
    if len(wait.signallers) < wait.threshold:
        return f"{text}, but a step signals it {wait.signals_per_step} times"
    if len(wait.signallers) == 1:
        return f"{text}, from {wait.last}"
    return f"{text}, from {len(wait.signallers)} signals, by estimate the last of {wait.last}"
