"""What mutation classes are made of: their register, and how a part of a schedule is chosen and put back."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from amk.ir.schedule import Queue, Schedule, Stream, Task

Mutation = Callable[[random.Random, Schedule], Schedule | None]

# The order in which classes register decides which one a seed chooses.
JUDGED: dict[str, Mutation] = {}


def judged(mutation: Mutation) -> Mutation:
    """Register a class whose mutants are decided one by one."""
    JUDGED[mutation.__name__] = mutation
    return mutation


def with_task(schedule: Schedule, task: Task) -> Schedule:
    return replace(schedule, tasks=tuple(task if old.id == task.id else old for old in schedule.tasks))


def with_queues(schedule: Schedule, *queues: Queue) -> Schedule:
    new = {queue.index: queue for queue in queues}
    return replace(schedule, queues=tuple(new.get(old.index, old) for old in schedule.queues))


def with_op(schedule: Schedule, task: Task, op: Any) -> Schedule:
    """Other parameters, and accesses derived from them; a stream keeps its gate by its place."""
    buffers = schedule.buffer
    regions = op.streams(buffers)
    gates = [stream.gate for stream in task.streams] + [()] * len(regions)
    streams = tuple(Stream(region=region, gate=gate) for region, gate in zip(regions, gates, strict=False))
    return with_task(
        schedule, replace(task, op=op, reads=op.reads(buffers), writes=op.writes(buffers), streams=streams)
    )


def choose(rng: random.Random, schedule: Schedule, wanted: Callable[[Task], object]) -> Task | None:
    found = [task for task in schedule.tasks if wanted(task)]
    return rng.choice(found) if found else None
