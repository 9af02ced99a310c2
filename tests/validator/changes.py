"""Small changes to a real schedule. Each takes a random generator and a schedule, and gives back a broken one."""

from __future__ import annotations

import random
from collections.abc import Callable

from msgspec.structs import replace

from amk.ir.buffers import Operand
from amk.ir.regions import Region
from amk.ir.schedule import Queue, Schedule, Stream, Task, Wait
from amk.ir.tasks import Attention, Begin, Gemv, Sample, Store

Change = Callable[[random.Random, Schedule], Schedule]


def with_task(schedule: Schedule, task: Task) -> Schedule:
    return replace(schedule, tasks=tuple(task if old.id == task.id else old for old in schedule.tasks))


def with_op(schedule: Schedule, task: Task, op: object) -> Schedule:
    """Change the parameters and, as a careful forger would, derive the accesses again."""
    buffers = schedule.buffer
    gates = {stream.region.buffer: stream.gate for stream in task.streams}
    streams = tuple(Stream(region=region, gate=gates.get(region.buffer, ())) for region in op.streams(buffers))
    new = replace(task, op=op, reads=op.reads(buffers), writes=op.writes(buffers), streams=streams)
    return with_task(schedule, new)


def pick(rng: random.Random, schedule: Schedule, wanted: Callable[[Task], bool]) -> Task:
    return rng.choice([task for task in schedule.tasks if wanted(task)])


def worker_of(schedule: Schedule, task: Task) -> int:
    return next(queue.index for queue in schedule.queues if task.id in queue.tasks)


def drop_wait(rng: random.Random, schedule: Schedule) -> Schedule:
    task = pick(rng, schedule, lambda t: bool(t.waits))
    return with_task(schedule, replace(task, waits=()))


def lower_threshold(rng: random.Random, schedule: Schedule) -> Schedule:
    return _threshold(rng, schedule, -1)


def raise_threshold(rng: random.Random, schedule: Schedule) -> Schedule:
    return _threshold(rng, schedule, 1)


def _threshold(rng: random.Random, schedule: Schedule, by: int) -> Schedule:
    task = pick(rng, schedule, lambda t: bool(t.waits))
    wait = task.waits[0]
    return with_task(schedule, replace(task, waits=(Wait(counter=wait.counter, threshold=wait.threshold + by),)))


def swap_order(rng: random.Random, schedule: Schedule) -> Schedule:
    queue = rng.choice([queue for queue in schedule.queues if len(queue.tasks) > 2])
    at = rng.randrange(1, len(queue.tasks) - 1)
    names = list(queue.tasks)
    names[at], names[at + 1] = names[at + 1], names[at]
    return _with_queue(schedule, replace(queue, tasks=tuple(names)))


def _with_queue(schedule: Schedule, queue: Queue) -> Schedule:
    return replace(schedule, queues=tuple(queue if old.index == queue.index else old for old in schedule.queues))


def move_task(rng: random.Random, schedule: Schedule) -> Schedule:
    task = pick(rng, schedule, lambda t: not isinstance(t.op, Begin))
    home = worker_of(schedule, task)
    other = rng.choice([queue for queue in schedule.queues if queue.index != home])
    without = replace(
        schedule.queues[home], tasks=tuple(name for name in schedule.queues[home].tasks if name != task.id)
    )
    names = list(other.tasks)
    names.insert(rng.randrange(1, len(names) + 1), task.id)
    return _with_queue(_with_queue(schedule, without), replace(other, tasks=tuple(names)))


def drop_signal(rng: random.Random, schedule: Schedule) -> Schedule:
    task = pick(rng, schedule, lambda t: bool(t.signals))
    return with_task(schedule, replace(task, signals=task.signals[1:]))


def double_signal(rng: random.Random, schedule: Schedule) -> Schedule:
    task = pick(rng, schedule, lambda t: bool(t.signals))
    return with_task(schedule, replace(task, signals=task.signals + task.signals[:1]))


def first_streamer(rng: random.Random, schedule: Schedule) -> Task:
    """An attention task whose gate is the first of its queue: a producer stays behind all gates it has passed."""
    firsts = []
    for queue in schedule.queues:
        tasks = (schedule.task[name] for name in queue.tasks)
        firsts += [task for task in tasks if isinstance(task.op, Attention)][:1]
    return rng.choice(firsts)


def gate_to_wait(rng: random.Random, schedule: Schedule) -> Schedule:
    task = first_streamer(rng, schedule)
    streams = tuple(replace(stream, gate=()) for stream in task.streams)
    return with_task(schedule, replace(task, streams=streams, waits=(*task.waits, *task.streams[0].gate)))


def drop_gate(rng: random.Random, schedule: Schedule) -> Schedule:
    task = first_streamer(rng, schedule)
    return with_task(schedule, replace(task, streams=tuple(replace(stream, gate=()) for stream in task.streams)))


def shift_rows(rng: random.Random, schedule: Schedule) -> Schedule:
    task = pick(rng, schedule, lambda t: isinstance(t.op, Gemv) and t.op.rows[0] > 0)
    low, high = task.op.rows
    return with_op(schedule, task, replace(task.op, rows=(low - 2, high - 2)))


def shrink_rows(rng: random.Random, schedule: Schedule) -> Schedule:
    task = pick(rng, schedule, lambda t: isinstance(t.op, Gemv))
    low, high = task.op.rows
    return with_op(schedule, task, replace(task.op, rows=(low, high - 2)))


def lie_about_writes(rng: random.Random, schedule: Schedule) -> Schedule:
    task = pick(rng, schedule, lambda t: bool(t.writes))
    return with_task(schedule, replace(task, writes=task.writes[1:]))


def lie_about_reads(rng: random.Random, schedule: Schedule) -> Schedule:
    task = pick(rng, schedule, lambda t: len(t.reads) > 1)
    return with_task(schedule, replace(task, reads=task.reads[:-1]))


def alias_buffers(rng: random.Random, schedule: Schedule) -> Schedule:
    """The output of one task lands in the residual stream."""
    task = pick(rng, schedule, lambda t: isinstance(t.op, Gemv) and isinstance(t.op.epilogue, Store))
    out = replace(task.op.epilogue.out, buffer="mlp")
    return with_op(schedule, task, replace(task.op, epilogue=Store(out=out)))


def other_version(rng: random.Random, schedule: Schedule) -> Schedule:
    task = pick(rng, schedule, lambda t: isinstance(t.op, Gemv) and t.op.x.buffer == "hidden")
    version = (task.op.x.version + 1) % schedule.buffer["hidden"].versions
    return with_op(schedule, task, replace(task.op, x=Operand(buffer="hidden", version=version, lag=task.op.x.lag)))


def flip_lag(rng: random.Random, schedule: Schedule) -> Schedule:
    task = pick(rng, schedule, lambda t: isinstance(t.op, Gemv) and t.op.x.buffer == "hidden")
    return with_op(schedule, task, replace(task.op, x=replace(task.op.x, lag=1 - task.op.x.lag)))


def other_head(rng: random.Random, schedule: Schedule) -> Schedule:
    task = pick(rng, schedule, lambda t: isinstance(t.op, Attention) and t.op.kv_heads > 1)
    return with_op(schedule, task, replace(task.op, kv_head=(task.op.kv_head + 1) % task.op.kv_heads))


def other_cache(rng: random.Random, schedule: Schedule) -> Schedule:
    task = pick(rng, schedule, lambda t: isinstance(t.op, Attention) and t.op.split == 0)
    other = pick(rng, schedule, lambda t: isinstance(t.op, Attention) and t.op.k_cache != task.op.k_cache)
    return with_op(schedule, task, replace(task.op, k_cache=other.op.k_cache))


def unknown_counter(rng: random.Random, schedule: Schedule) -> Schedule:
    task = pick(rng, schedule, lambda t: bool(t.waits))
    return with_task(schedule, replace(task, waits=(Wait(counter="nobody", threshold=0),)))


def region_out_of_range(rng: random.Random, schedule: Schedule) -> Schedule:
    task = pick(rng, schedule, lambda t: bool(t.writes))
    region = task.writes[0].region
    box = (*region.box[:-1], (0, 2**40))
    write = replace(task.writes[0], region=Region(buffer=region.buffer, box=box))
    return with_task(schedule, replace(task, writes=(write, *task.writes[1:])))


def no_begin(rng: random.Random, schedule: Schedule) -> Schedule:
    queue = rng.choice(schedule.queues)
    names = {queue.tasks[0]}
    kept = replace(schedule, tasks=tuple(task for task in schedule.tasks if task.id not in names))
    return _with_queue(kept, replace(queue, tasks=queue.tasks[1:]))


def two_samplers(rng: random.Random, schedule: Schedule) -> Schedule:
    task = pick(rng, schedule, lambda t: isinstance(t.op, Sample))
    twin = replace(task, id="twin")
    queue = schedule.queues[worker_of(schedule, task)]
    more = replace(schedule, tasks=(*schedule.tasks, twin))
    return _with_queue(more, replace(queue, tasks=(*queue.tasks, "twin")))


def too_many_workers(rng: random.Random, schedule: Schedule) -> Schedule:
    return replace(schedule, target=replace(schedule.target, workers=len(schedule.queues) - 1))


def ring_too_large(rng: random.Random, schedule: Schedule) -> Schedule:
    return replace(schedule, target=replace(schedule.target, stages=1000))


# Changes after which the schedule is always unsafe.
ALWAYS: dict[str, Change] = {
    change.__name__: change
    for change in (
        raise_threshold,
        drop_signal,
        gate_to_wait,
        drop_gate,
        shift_rows,
        shrink_rows,
        lie_about_writes,
        lie_about_reads,
        alias_buffers,
        other_version,
        flip_lag,
        other_head,
        other_cache,
        unknown_counter,
        region_out_of_range,
        no_begin,
        two_samplers,
        too_many_workers,
        ring_too_large,
    )
}

# Changes that are now and then harmless: a later wait or a quieter place makes up for them.
OFTEN: dict[str, Change] = {
    change.__name__: change for change in (drop_wait, lower_threshold, swap_order, move_task, double_signal)
}
