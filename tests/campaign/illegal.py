"""Mutation classes that no schedule survives: each breaks a rule about the file or the chip, whatever it does to order.

They need no judge. Each is refused for the reason that its function states; a proof of one is a false accept.
"""

from __future__ import annotations

import random
from typing import Any

from msgspec.structs import replace

from amk.ir.regions import Interval, Linear, Region
from amk.ir.schedule import Counter, Schedule, Stream, Symbol, Task
from amk.ir.tasks import Begin, Sample
from tests.campaign.parts import Mutation, choose, with_queues, with_task

ILLEGAL: dict[str, Mutation] = {}


def illegal(mutation: Mutation) -> Mutation:
    """Register a class all of whose mutants must be refused."""
    ILLEGAL[mutation.__name__] = mutation
    return mutation


def _moved(rng: random.Random, interval: Interval) -> Interval:
    def by(bound: Any, amount: int) -> Any:
        return replace(bound, base=bound.base + amount) if isinstance(bound, Linear) else bound + amount

    amount = rng.choice([-1, 1])
    return rng.choice([(by(interval[0], amount), interval[1]), (interval[0], by(interval[1], amount))])


@illegal
def lie_about_region(rng: random.Random, schedule: Schedule) -> Schedule | None:
    """An access that the task's kind does not derive: a bound moved, an access left out, or one too many."""
    part = rng.choice(["reads", "writes", "streams"])
    task = choose(rng, schedule, lambda t: getattr(t, part))
    if task is None:
        return None
    accesses = list(getattr(task, part))
    at = rng.randrange(len(accesses))
    what = rng.choice(["move", "drop", "twice"])
    if what == "move":
        region: Region = accesses[at].region
        box = list(region.box)
        axis = rng.randrange(len(box))
        box[axis] = _moved(rng, box[axis])
        accesses[at] = replace(accesses[at], region=replace(region, box=tuple(box)))
    elif what == "drop":
        accesses.pop(at)
    else:
        accesses.append(accesses[at])
    return with_task(schedule, replace(task, **{part: tuple(accesses)}))


@illegal
def stray_id(rng: random.Random, schedule: Schedule) -> Schedule | None:
    """An id that names nothing, or two things."""
    task = rng.choice(schedule.tasks)
    queue = rng.choice(schedule.queues)
    changes = [
        lambda: with_task(schedule, replace(task, signals=(*task.signals, "nobody"))),
        lambda: (
            replace(schedule, counters=tuple(c for c in schedule.counters if c.id != task.signals[0]))
            if task.signals
            else None
        ),
        lambda: with_queues(schedule, replace(queue, tasks=(*queue.tasks, "nobody"))),
        lambda: with_queues(schedule, replace(queue, tasks=queue.tasks[:-1])),
        lambda: with_queues(schedule, replace(queue, tasks=(*queue.tasks, queue.tasks[-1]))),
        lambda: with_queues(schedule, replace(queue, index=len(schedule.queues) + queue.index)),
        lambda: replace(schedule, tasks=(*schedule.tasks, task)),
        lambda: replace(schedule, counters=(*schedule.counters, schedule.counters[0])),
        lambda: replace(schedule, buffers=(*schedule.buffers, schedule.buffers[0])),
        lambda: replace(schedule, buffers=tuple(b for b in schedule.buffers if b.id != "hidden")),
        lambda: replace(schedule, counters=(*schedule.counters, Counter(id=""))),
    ]
    return rng.choice(changes)()


@illegal
def out_of_range(rng: random.Random, schedule: Schedule) -> Schedule | None:
    """A version, a lag or a word that the buffer does not have."""
    task = choose(rng, schedule, lambda t: t.writes and t.reads)
    if task is None:
        return None
    read, write = task.reads[0], task.writes[0]
    huge = replace(write.region, box=(*write.region.box[:-1], (0, 2**40)))
    below = replace(write.region, box=(*write.region.box[:-1], (-1, 1)))
    changes: list[dict[str, Any]] = [
        {"reads": (replace(read, version=2**20), *task.reads[1:])},
        {"reads": (replace(read, version=-1), *task.reads[1:])},
        {"reads": (replace(read, lag=rng.choice([-1, 2, 2**40])), *task.reads[1:])},
        {"writes": (replace(write, version=-1), *task.writes[1:])},
        {"writes": (replace(write, region=huge), *task.writes[1:])},
        {"writes": (replace(write, region=below), *task.writes[1:])},
        {"streams": (*task.streams, Stream(region=Region(buffer="nobody", box=((0, 1),))))},
    ]
    return with_task(schedule, replace(task, **rng.choice(changes)))


@illegal
def over_capacity(rng: random.Random, schedule: Schedule) -> Schedule | None:
    """More than the chip holds at once, or than the launch format can say."""
    target = schedule.target
    ring = target.stages * target.stage_bytes
    changes: list[dict[str, Any]] = [
        {"workers": len(schedule.queues) - 1},
        {"workers": 1025},
        {"stages": target.stages * 64},
        {"shared_memory_bytes": ring},
        {"in_flight_bytes": ring + 1},
        {"stage_bytes": 256},
        {"k_chunk": 2**22},
        {"drift": rng.choice([-1, 9])},
        {"consumer_warps": 0},
        {"arch": "sm_70"},
        {"shared_memory_bytes": 2**30},
    ]
    return replace(schedule, target=replace(target, **rng.choice(changes)))


@illegal
def not_this_version(rng: random.Random, schedule: Schedule) -> Schedule | None:
    """What the format can say and this version does not prove, or a launch of which no step fits."""
    context = schedule.max_context
    changes: list[dict[str, Any]] = [
        {"devices": 2},
        {"sequences": 2},
        {"symbols": (*schedule.symbols, Symbol(name="batch", low=1, high=2))},
        {"symbols": schedule.symbols[:1]},
        {"symbols": (Symbol(name="pos", low=context, high=context), schedule.symbols[1])},
        {"symbols": (schedule.symbols[0], Symbol(name="tokens", low=0, high=1))},
        {"symbols": (schedule.symbols[0], Symbol(name="tokens", low=1, high=9))},
    ]
    return replace(schedule, **rng.choice(changes))


@illegal
def stop_ignored(rng: random.Random, schedule: Schedule) -> Schedule | None:
    """A queue that does not open with Begin, a second sampler, or none."""
    queue = rng.choice(schedule.queues)
    sampler = next(task for task in schedule.tasks if isinstance(task.op, Sample))
    begin = schedule.task[queue.tasks[0]]
    assert isinstance(begin.op, Begin)

    def without(task: Task) -> Schedule:
        kept = replace(schedule, tasks=tuple(old for old in schedule.tasks if old is not task))
        home = next(one for one in schedule.queues if task.id in one.tasks)
        return with_queues(kept, replace(home, tasks=tuple(name for name in home.tasks if name != task.id)))

    def with_twin(task: Task) -> Schedule:
        twin = replace(task, id="twin")
        home = next(one for one in schedule.queues if task.id in one.tasks)
        grown = replace(schedule, tasks=(*schedule.tasks, twin))
        return with_queues(grown, replace(home, tasks=(*home.tasks, "twin")))

    this_step = replace(begin.op, stop=replace(begin.op.stop, lag=0))
    reads = this_step.reads(schedule.buffer)
    changes = [
        lambda: without(begin),
        lambda: without(sampler),
        lambda: with_twin(sampler),
        lambda: with_twin(begin),
        lambda: with_task(schedule, replace(begin, op=this_step, reads=reads)),
    ]
    return rng.choice(changes)()


@illegal
def constant_written(rng: random.Random, schedule: Schedule) -> Schedule | None:
    """A buffer that the launch writes is declared one that never changes."""
    written = sorted({write.region.buffer for task in schedule.tasks for write in task.writes})
    name = rng.choice(written)
    buffers = tuple(
        replace(old, kind=rng.choice(["weight", "const", "input"])) if old.id == name else old
        for old in schedule.buffers
    )
    return replace(schedule, buffers=buffers)
