"""The mutation classes: one change to a schedule that is right.

Each takes a random generator and a schedule and gives back another one, or None where the schedule has no place for it.
Changes of what a task touches go through its parameters and derive its accesses anew, as a careful forger would; the
classes in ``illegal`` do not, and are refused whatever else they do.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from amk.ir.schedule import Queue, Schedule, Stream, Task, Wait
from amk.ir.tasks import Argmax, Attention, Begin, GatedMul, Gemv, MergeSplits
from tests.campaign.operands import is_written, operands, with_operand

Mutation = Callable[[random.Random, Schedule], Schedule | None]

JUDGED: dict[str, Mutation] = {}


def judged(mutation: Mutation) -> Mutation:
    """Register a class whose mutants are decided one by one."""
    JUDGED[mutation.__name__] = mutation
    return mutation


# --- parts of a schedule ---------------------------------------------------------------------------------------------


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


def _need(rng: random.Random, schedule: Schedule) -> tuple[Task, list[Wait], Callable[[list[Wait]], Schedule]] | None:
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
    found = _need(rng, schedule)
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
    found = _need(rng, schedule)
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


# --- regions ---------------------------------------------------------------------------------------------------------


def _rows(rng: random.Random, schedule: Schedule, low_by: int, high_by: int) -> Schedule | None:
    task = choose(rng, schedule, lambda t: isinstance(t.op, Gemv))
    if task is None or not isinstance(task.op, Gemv):
        return None
    low, high = task.op.rows[0] + low_by, task.op.rows[1] + high_by
    if isinstance(task.op.epilogue, GatedMul) and (low % 2 or high % 2):
        return None
    if not 0 <= low < high <= schedule.buffer[task.op.weight].shape[0]:
        return None
    return with_op(schedule, task, replace(task.op, rows=(low, high)))


@judged
def shift_region(rng: random.Random, schedule: Schedule) -> Schedule | None:
    """Other rows, another head, another split or another slot."""
    task = choose(rng, schedule, lambda t: isinstance(t.op, (Gemv, Attention)))
    if task is None:
        return None
    match task.op:
        case Attention() as op if op.splits > 1 and rng.random() < 0.5:
            return with_op(schedule, task, replace(op, split=rng.randrange(op.splits)))
        case Attention() as op:
            return with_op(schedule, task, replace(op, kv_head=rng.randrange(op.kv_heads)))
        case Gemv(epilogue=Argmax() as end) as op if rng.random() < 0.5:
            slots = schedule.buffer[end.value.buffer].shape[0]
            return with_op(schedule, task, replace(op, epilogue=replace(end, slot=rng.randrange(slots))))
    by = rng.choice([-8, -2, -1, 1, 2, 8])
    return _rows(rng, schedule, by, by)


@judged
def shrink_region(rng: random.Random, schedule: Schedule) -> Schedule | None:
    by = rng.choice([1, 2, 4])
    return _rows(rng, schedule, by, 0) if rng.random() < 0.5 else _rows(rng, schedule, 0, -by)


@judged
def grow_region(rng: random.Random, schedule: Schedule) -> Schedule | None:
    by = rng.choice([1, 2, 4])
    return _rows(rng, schedule, -by, 0) if rng.random() < 0.5 else _rows(rng, schedule, 0, by)


def _operand(
    rng: random.Random, schedule: Schedule, change: Callable[[Any], Any], *, written: bool | None, tagged: bool = False
) -> Schedule | None:
    """Another operand somewhere; what a merge reads beside it goes along, for the kind asks that the two agree."""

    def places(task: Task) -> list[Any]:
        found = [] if isinstance(task.op, Begin) else operands(task.op)
        return [
            (path, operand)
            for path, operand in found
            if (written is None or is_written(task.op, path) == written)
            and schedule.buffer[operand.buffer].tagged >= tagged
        ]

    task = choose(rng, schedule, places)
    if task is None:
        return None
    path, operand = rng.choice(places(task))
    op = with_operand(task.op, path, change(operand))
    if isinstance(op, Gemv) and isinstance(op.prologue, MergeSplits) and path in {("x",), ("prologue", "stats")}:
        lag = change(operand).lag
        op = replace(
            op, x=replace(op.x, lag=lag), prologue=replace(op.prologue, stats=replace(op.prologue.stats, lag=lag))
        )
    return with_op(schedule, task, op)


@judged
def other_version(rng: random.Random, schedule: Schedule) -> Schedule | None:
    """Cross-step and in-step reuse: the same words, another write of them."""
    return _operand(
        rng,
        schedule,
        lambda o: replace(o, version=rng.randrange(schedule.buffer[o.buffer].versions)),
        written=None,
    )


@judged
def lag(rng: random.Random, schedule: Schedule) -> Schedule | None:
    return _operand(rng, schedule, lambda o: replace(o, lag=1 - o.lag), written=False)


@judged
def cross_step_reuse(rng: random.Random, schedule: Schedule) -> Schedule | None:
    """A join of this step becomes a join of the last one, and often a read goes with it."""
    found = _need(rng, schedule)
    if found is None:
        return None
    task, waits, put = found
    at = rng.randrange(len(waits))
    count = schedule.signals_per_step[waits[at].counter]
    waits[at] = replace(waits[at], threshold=waits[at].threshold - count)
    changed = put(waits)
    reads = [path for path, _ in operands(task.op) if not is_written(task.op, path)]
    if isinstance(task.op, Begin) or not reads or rng.random() < 0.5:
        return changed
    return _operand(rng, changed, lambda o: replace(o, lag=1), written=False)


@judged
def tag_epoch(rng: random.Random, schedule: Schedule) -> Schedule | None:
    """The epoch that a tagged word is written with or polled for: another version, or another step."""

    written = rng.random() < 0.4  # a write is of its own step

    def change(operand: Any) -> Any:
        versions = schedule.buffer[operand.buffer].versions
        if written or (versions > 1 and rng.random() < 0.7):
            return replace(operand, version=(operand.version + rng.randrange(versions)) % versions)
        return replace(operand, lag=1 - operand.lag)

    return _operand(rng, schedule, change, written=written, tagged=True)


@judged
def toggle_tag(rng: random.Random, schedule: Schedule) -> Schedule | None:
    """A buffer's words lose their tags, or gain them, or polls of them become acquires; often a wait goes with it."""
    buffer = rng.choice([buffer for buffer in schedule.buffers if buffer.kind in {"activation", "state"}])
    fenced = buffer.tagged and rng.random() < 0.5
    new = replace(buffer, fenced=True) if fenced else replace(buffer, tagged=not buffer.tagged, fenced=False)
    changed = replace(schedule, buffers=tuple(new if old is buffer else old for old in schedule.buffers))
    return changed if rng.random() < 0.3 else rng.choice([drop_wait, lower_threshold])(rng, changed)


# --- buffers ---------------------------------------------------------------------------------------------------------


@judged
def alias_buffers(rng: random.Random, schedule: Schedule) -> Schedule | None:
    """Two buffers become one allocation."""
    changing = [buffer for buffer in schedule.buffers if buffer.kind in {"kv", "activation", "state"}]
    pairs = [
        (small, large)
        for small in changing
        for large in changing
        if small.id != large.id
        and (small.kind, small.dtype, len(small.shape)) == (large.kind, large.dtype, len(large.shape))
        and all(a <= b for a, b in zip(small.shape, large.shape, strict=True))
        and (small.kind != "kv" or small.id.split(".")[1] == large.id.split(".")[1])
    ]
    if not pairs:
        return None
    small, large = rng.choice(pairs)
    merged = replace(large, versions=max(small.versions, large.versions))
    buffers = tuple(merged if old is large else old for old in schedule.buffers if old is not small)
    name = re.compile(re.escape(f'"{small.id}"'.encode()) + rb"(?!:)")  # where it is a value, not a key
    return Schedule.from_json(name.sub(f'"{large.id}"'.encode(), replace(schedule, buffers=buffers).to_json()))


@judged
def other_buffer(rng: random.Random, schedule: Schedule) -> Schedule | None:
    """One task reads or writes a buffer of another name."""
    names = [buffer.id for buffer in schedule.buffers if buffer.kind in {"activation", "state"}]

    def change(operand: Any) -> Any:
        old = schedule.buffer[operand.buffer]
        alike = [
            name
            for name in names
            if (schedule.buffer[name].dtype, len(schedule.buffer[name].shape)) == (old.dtype, len(old.shape))
            and operand.version < schedule.buffer[name].versions
        ]
        return replace(operand, buffer=rng.choice(alike)) if alike else operand

    return _operand(rng, schedule, change, written=None)


# --- the launch ------------------------------------------------------------------------------------------------------


@judged
def drift(rng: random.Random, schedule: Schedule) -> Schedule | None:
    """Warps that drift by another number of tasks, over a queue that leans on its order more than it did."""
    changed = rng.choice([drop_wait, drop_wait, lower_threshold, move_task])(rng, schedule)
    return changed and replace(changed, target=replace(changed.target, drift=rng.randint(0, 8)))


@judged
def few_steps(rng: random.Random, schedule: Schedule) -> Schedule | None:
    """One wait or signal less, in launches of so few steps that it may not matter."""
    change = rng.choice([drop_wait, lower_threshold, other_signal, lend_signal, drop_gate])
    changed = change(rng, schedule)
    return changed and replace(changed, steps_max=rng.randint(1, 3))
