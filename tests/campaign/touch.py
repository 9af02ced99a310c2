"""Mutations of what tasks touch: regions, versions, lags and epochs, and which buffer."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from amk.ir.schedule import Schedule, Task
from amk.ir.tasks import Argmax, Attention, Begin, GatedMul, Gemv, MergeSplits
from tests.campaign.operands import is_written, operands, with_operand
from tests.campaign.order import drop_wait, lower_threshold, need_of
from tests.campaign.parts import choose, judged, with_op

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
    found = need_of(rng, schedule)
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
