"""Mutations of order: waits and gates, places in queues, signals."""

from __future__ import annotations

import random
from collections.abc import Callable

from msgspec.structs import replace

from amk.ir.schedule import Schedule, Task, Wait
from amk.ir.tasks import Begin
from tests.campaign.parts import choose, judged, with_queues, with_task


def need_of(rng: random.Random, schedule: Schedule) -> tuple[Task, list[Wait], Callable[[list[Wait]], Schedule]] | None:
    """A task with waits or gates, one list of them, and how to put a changed list back."""
    task = choose(rng, schedule, lambda t: t.waits or any(stream.gate for stream in t.streams))
    if task is None:
        return None
    gated = [number for number, stream in enumerate(task.streams) if stream.gate]
    if task.waits and (not gated or rng.random() < 0.6):
        return task, list(task.waits), lambda waits: with_task(schedule, replace(task, waits=tuple(waits)))
    at = rng.choice(gated)

    def put(waits: list[Wait]) -> Schedule:
        streams = list(task.streams)
        streams[at] = replace(streams[at], gate=tuple(waits))
        return with_task(schedule, replace(task, streams=tuple(streams)))

    return task, list(task.streams[at].gate), put


# --- waits and gates -------------------------------------------------------------------------------------------------


@judged
def drop_wait(rng: random.Random, schedule: Schedule) -> Schedule | None:
    task = choose(rng, schedule, lambda t: t.waits)
    if task is None:
        return None
    waits = list(task.waits)
    waits.pop(rng.randrange(len(waits)))
    return with_task(schedule, replace(task, waits=tuple(waits)))


@judged
def drop_gate(rng: random.Random, schedule: Schedule) -> Schedule | None:
    task = choose(rng, schedule, lambda t: any(stream.gate for stream in t.streams))
    if task is None:
        return None
    both = rng.random() < 0.5
    at = rng.choice([number for number, stream in enumerate(task.streams) if stream.gate])
    streams = tuple(
        replace(stream, gate=()) if both or number == at else stream for number, stream in enumerate(task.streams)
    )
    return with_task(schedule, replace(task, streams=streams))


def _threshold(rng: random.Random, schedule: Schedule, sign: int) -> Schedule | None:
    found = need_of(rng, schedule)
    if found is None:
        return None
    _, waits, put = found
    at = rng.randrange(len(waits))
    count = schedule.signals_per_step[waits[at].counter]
    by = rng.choice([1, 1, 1, 2, count, rng.randint(1, max(1, count))])
    waits[at] = replace(waits[at], threshold=waits[at].threshold + sign * by)
    return put(waits)


@judged
def lower_threshold(rng: random.Random, schedule: Schedule) -> Schedule | None:
    return _threshold(rng, schedule, -1)


@judged
def raise_threshold(rng: random.Random, schedule: Schedule) -> Schedule | None:
    return _threshold(rng, schedule, 1)


@judged
def other_counter(rng: random.Random, schedule: Schedule) -> Schedule | None:
    """Wait for all of another counter, of this step or the last."""
    found = need_of(rng, schedule)
    if found is None:
        return None
    _, waits, put = found
    counter = rng.choice(schedule.counters).id
    count = schedule.signals_per_step[counter]
    waits[rng.randrange(len(waits))] = Wait(counter=counter, threshold=rng.choice([0, count]))
    return put(waits)


@judged
def add_wait(rng: random.Random, schedule: Schedule) -> Schedule | None:
    """One wait more: harmless, unless nothing can end it."""
    task = rng.choice(schedule.tasks)
    counter = rng.choice(schedule.counters).id
    extra = Wait(counter=counter, threshold=rng.choice([0, 1, schedule.signals_per_step[counter]]))
    return with_task(schedule, replace(task, waits=(*task.waits, extra)))


@judged
def gate_to_wait(rng: random.Random, schedule: Schedule) -> Schedule | None:
    task = choose(rng, schedule, lambda t: any(stream.gate for stream in t.streams))
    if task is None:
        return None
    gates = tuple(wait for stream in task.streams for wait in stream.gate)
    streams = tuple(replace(stream, gate=()) for stream in task.streams)
    return with_task(schedule, replace(task, waits=(*task.waits, *gates), streams=streams))


@judged
def wait_to_gate(rng: random.Random, schedule: Schedule) -> Schedule | None:
    task = choose(rng, schedule, lambda t: t.waits and t.streams)
    if task is None:
        return None
    streams = tuple(replace(stream, gate=(*stream.gate, *task.waits)) for stream in task.streams)
    return with_task(schedule, replace(task, waits=(), streams=streams))


# --- queues ----------------------------------------------------------------------------------------------------------


@judged
def swap_order(rng: random.Random, schedule: Schedule) -> Schedule | None:
    long = [queue for queue in schedule.queues if len(queue.tasks) > 2]
    if not long:
        return None
    queue = rng.choice(long)
    names = list(queue.tasks)
    i = rng.randrange(1, len(names) - 1)
    j = i + 1 if rng.random() < 0.6 else rng.randrange(1, len(names))
    names[i], names[j] = names[j], names[i]
    return with_queues(schedule, replace(queue, tasks=tuple(names)))


@judged
def move_task(rng: random.Random, schedule: Schedule) -> Schedule | None:
    """To another worker, often to a place among the tasks of its own hop."""
    task = choose(rng, schedule, lambda t: not isinstance(t.op, Begin))
    if task is None or len(schedule.queues) < 2:
        return None
    home = next(queue for queue in schedule.queues if task.id in queue.tasks)
    other = rng.choice([queue for queue in schedule.queues if queue is not home])
    names, hop = list(other.tasks), task.id.split("#")[0]
    alike = [at for at, name in enumerate(names) if name.split("#")[0] == hop]
    at = rng.choice(alike) + rng.randint(0, 1) if alike and rng.random() < 0.7 else rng.randint(1, len(names))
    names.insert(at, task.id)
    left = replace(home, tasks=tuple(name for name in home.tasks if name != task.id))
    return with_queues(schedule, left, replace(other, tasks=tuple(names)))


# --- signals ---------------------------------------------------------------------------------------------------------


@judged
def drop_signal(rng: random.Random, schedule: Schedule) -> Schedule | None:
    task = choose(rng, schedule, lambda t: t.signals)
    if task is None:
        return None
    signals = list(task.signals)
    signals.pop(rng.randrange(len(signals)))
    return with_task(schedule, replace(task, signals=tuple(signals)))


@judged
def duplicate_signal(rng: random.Random, schedule: Schedule) -> Schedule | None:
    task = choose(rng, schedule, lambda t: t.signals)
    return task and with_task(schedule, replace(task, signals=(*task.signals, rng.choice(task.signals))))


@judged
def other_signal(rng: random.Random, schedule: Schedule) -> Schedule | None:
    task = choose(rng, schedule, lambda t: t.signals)
    if task is None:
        return None
    signals = list(task.signals)
    signals[rng.randrange(len(signals))] = rng.choice(schedule.counters).id
    return with_task(schedule, replace(task, signals=tuple(signals)))


@judged
def lend_signal(rng: random.Random, schedule: Schedule) -> Schedule | None:
    """A signal that one task no longer gives and another gives instead: every count stays what it was."""
    task = choose(rng, schedule, lambda t: t.signals)
    if task is None:
        return None
    other = rng.choice(schedule.tasks)
    lent, *kept = task.signals
    changed = with_task(schedule, replace(task, signals=tuple(kept)))
    return with_task(changed, replace(changed.task[other.id], signals=(*changed.task[other.id].signals, lent)))
