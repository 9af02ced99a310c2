"""What the page is given: the tasks as columns of small numbers, and tables of the texts that they share."""

from __future__ import annotations

from typing import Generic, TypeVar

from amk.cli.inspect_page.describe import kind_of, parameters, printable, role_of, show_access
from amk.ir.schedule import Schedule, Task
from amk.ir.timeline import Span, Timeline, hop_of

ItemT = TypeVar("ItemT")

NEVER = -1  # as a start or an end: the task is stuck


class Table(Generic[ItemT]):
    """Each distinct item once, in order of its first use."""

    def __init__(self) -> None:
        self.items: dict[ItemT, int] = {}

    def index(self, item: ItemT) -> int:
        """Where ``item`` stands; it is added if it is new."""
        return self.items.setdefault(item, len(self.items))


def page_data(schedule: Schedule, timeline: Timeline) -> dict[str, object]:
    """The page's data, ready for JSON. Times are whole nanoseconds from the beginning of the step."""
    return _Packer(schedule, timeline).data()


def _nanoseconds(us: float) -> int:
    return round(us * 1000)


class _Packer:
    def __init__(self, schedule: Schedule, timeline: Timeline) -> None:
        self.schedule = schedule
        self.timeline = timeline
        self.texts: Table[str] = Table()
        self.counters: Table[str] = Table()
        self.waits: Table[tuple[int, int]] = Table()
        self.hops: Table[str] = Table()
        self.spans = {(span.worker, span.task): span for span in timeline.spans}

    def data(self) -> dict[str, object]:
        rows = [
            self.row(worker, self.schedule.task[name])
            for worker, queue in enumerate(self.schedule.queues)
            for name in queue.tasks
        ]
        columns = ("id", "worker", "hop", "kind", "start", "end", "wait", "bytes")
        lists = ("parameters", "reads", "writes", "streams", "waits", "signals")
        values = zip(*rows, strict=True) if rows else ((),) * (len(columns) + len(lists))
        return {
            "tasks": dict(zip(columns + lists, values, strict=True)),
            "hops": [self.hop(name) for name in self.hops.items],
            "workers": [[queue.device, queue.index] for queue in self.schedule.queues],
            "texts": list(self.texts.items),
            "waits": list(self.waits.items),
            "counters": [printable(name) for name in self.counters.items],
            "signals_per_step": [self.schedule.signals_per_step.get(name, 0) for name in self.counters.items],
            "stuck": [
                {"task": printable(stuck.task), "waits_for": printable(stuck.waits_for)}
                for stuck in self.timeline.stuck
            ],
            **self.totals(),
        }

    def totals(self) -> dict[str, object]:
        schedule, timeline = self.schedule, self.timeline
        target = schedule.target
        return {
            "digest": schedule.digest(),
            "target": printable(target.name),
            "arch": printable(target.arch),
            "pos": timeline.pos,
            "tokens": timeline.tokens,
            "step_us": timeline.step_us,
            "floor_us": timeline.floor_us,
            "bytes": timeline.bytes,
            "hop_us": target.hop_us,
            "ring_bytes": target.stages * target.stage_bytes,
            "max_context": schedule.max_context,
        }

    def row(self, worker: int, task: Task) -> tuple[object, ...]:
        buffers = self.schedule.buffer
        span: Span | None = self.spans.get((worker, task.id))
        return (
            printable(task.id),
            worker,
            self.hops.index(hop_of(task.id)),
            self.texts.index(kind_of(task)),
            NEVER if span is None else _nanoseconds(span.start_us),
            NEVER if span is None else _nanoseconds(span.end_us),
            0 if span is None else _nanoseconds(span.wait_us),
            0 if span is None else span.bytes,
            [self.texts.index(f"{name} {text}") for name, text in parameters(task.op, buffers)],
            [self.texts.index(show_access(read, buffers)) for read in task.reads],
            [self.texts.index(show_access(write, buffers)) for write in task.writes],
            [self.texts.index(show_access(stream, buffers)) for stream in task.streams],
            [self.waits.index((self.counters.index(wait.counter), wait.threshold)) for wait in task.waits],
            [self.counters.index(counter) for counter in task.signals],
        )

    def hop(self, name: str) -> dict[str, object]:
        return {"name": printable(name), "role": printable(role_of(name))}
