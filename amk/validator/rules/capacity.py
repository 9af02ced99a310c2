"""Capacity.

    workers <= co-resident blocks of the target; ring + staged activations + sums + scratch <= shared memory asked for
    <= what the architecture allows (for a chip with a record, what its record says); copies in flight <= ring; a
    block of the packed weights fits a stage, and a tile of rows the ring; counters, tasks, drift within the launch
    format; |k| + (D+2) * n_c < 2^31 for every wait (c, k); 1 + S_max * G < 2^32 for G versions of a tagged word.

More workers than can be co-resident would spin for blocks that never start. Counters are compared as int32
differences, so a threshold far below zero would wrap and never hold; epochs of one launch must not wrap either.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from amk.ir.buffers import ITEM_BYTES
from amk.ir.regions import TOKENS
from amk.ir.schedule import Schedule
from amk.ir.tasks import Gemv
from amk.target import ARCH_SHARED_MEMORY_BYTES, TARGETS, Target
from amk.validator.findings import Report, Rule
from amk.validator.limits import (
    COUNTERS_MAX,
    DRIFT_MAX,
    EPOCHS_MAX,
    SCRATCH_BYTES,
    SPAN_MAX,
    STAGED_BYTES,
    SUMS_BYTES,
    TASKS_MAX,
    TILE_COLUMNS,
    TILE_ROWS,
    WORKERS_MAX,
)
from amk.validator.order import STEPS_MAX

RULE: Final = Rule(code="AMK-V312", title="over capacity", statement=__doc__ or "")


def check(schedule: Schedule, report: Report) -> None:
    """Report what does not fit the target or the launch format."""
    target = schedule.target
    if faults := list(_impossible(target)):
        for fault in faults:
            report.add(RULE, fault)
        return
    if len(schedule.queues) > target.workers:
        mend = f"compile for {target.workers} workers"
        text = f"{len(schedule.queues)} queues, but {target.name} holds {target.workers} blocks at once"
        report.add(RULE, text, mend=mend)
    for fault in (*_shared_memory(target, schedule.symbol(TOKENS).high), *_tiles(schedule), *_format(schedule)):
        report.add(RULE, fault)


def _impossible(target: Target) -> Iterator[str]:
    sizes = ("workers", "shared_memory_bytes", "stage_bytes", "stages", "in_flight_bytes", "consumer_warps", "k_chunk")
    for name in sizes:
        if getattr(target, name) < 1:
            yield f"target {target.name}: {name}={getattr(target, name)} is not positive"
    if target.workers > WORKERS_MAX:
        yield f"target {target.name}: {target.workers} workers, at most {WORKERS_MAX}"
    if not 0 <= target.drift <= DRIFT_MAX:
        yield f"target {target.name}: drift={target.drift} is not in 0 .. {DRIFT_MAX}"
    if target.arch not in ARCH_SHARED_MEMORY_BYTES:
        yield f"target {target.name}: unknown arch {target.arch!r}"
    elif target.shared_memory_bytes > (most := _shared_memory_limit(target)):
        yield f"{target.shared_memory_bytes} bytes of shared memory, but {target.name} gives a block {most}"


def _shared_memory_limit(target: Target) -> int:
    most = ARCH_SHARED_MEMORY_BYTES[target.arch]
    known = TARGETS.get(target.name)
    return min(most, known.shared_memory_bytes) if known else most


def _shared_memory(target: Target, tokens: int) -> Iterator[str]:
    known = TARGETS.get(target.name)
    if known and known.arch != target.arch:
        yield f"target {target.name} is a {known.arch} chip, not {target.arch}"
    ring = target.stages * target.stage_bytes
    staging = target.k_chunk * tokens * STAGED_BYTES
    sums = target.consumer_warps * tokens * SUMS_BYTES
    total = ring + staging + sums + SCRATCH_BYTES
    if total > target.shared_memory_bytes:
        yield (
            f"ring {ring} + staged activations {staging} + sums {sums} + scratch {SCRATCH_BYTES} = {total} bytes, more "
            f"than the {target.shared_memory_bytes} of shared memory"
        )
    if target.in_flight_bytes > ring:
        yield f"{target.in_flight_bytes} bytes in flight, more than the ring of {ring}"


def _tiles(schedule: Schedule) -> Iterator[str]:
    """The packed weights of every GEMV against the ring; one line a weight buffer."""
    target = schedule.target
    ring = target.stages * target.stage_bytes
    done: set[tuple[str, int]] = set()
    for task in schedule.tasks:
        if not isinstance(task.op, Gemv) or (task.op.weight, task.op.k) in done:
            continue
        done.add((task.op.weight, task.op.k))
        weight = schedule.buffer.get(task.op.weight)
        item = ITEM_BYTES[weight.dtype] if weight else 1
        block = TILE_ROWS * TILE_COLUMNS * item
        tile = TILE_ROWS * min(task.op.k, target.k_chunk) * item
        if block > target.stage_bytes:
            yield f"{task.id}: a block of {task.op.weight} has {block} bytes, a stage of the ring {target.stage_bytes}"
        if tile > ring:
            yield f"{task.id}: a tile of {task.op.weight} has {tile} bytes, the ring {ring}"


def _format(schedule: Schedule) -> Iterator[str]:
    if len(schedule.counters) > COUNTERS_MAX:
        yield f"{len(schedule.counters)} counters, at most {COUNTERS_MAX}"
    if len(schedule.tasks) > TASKS_MAX:
        yield f"{len(schedule.tasks)} tasks, at most {TASKS_MAX}"
    yield from _spans(schedule)
    for buffer in schedule.buffers:
        if buffer.tagged and 1 + schedule.steps_max * buffer.versions >= EPOCHS_MAX:
            yield f"{buffer.id}: {schedule.steps_max} steps of {buffer.versions} versions leave its 32-bit epochs"


def _spans(schedule: Schedule) -> Iterator[str]:
    """Counters that int32 differences cannot hold, one line each."""
    farthest: dict[str, int] = {}
    for task in schedule.tasks:
        for wait in (*task.waits, *(wait for stream in task.streams for wait in stream.gate)):
            farthest[wait.counter] = max(farthest.get(wait.counter, 0), abs(wait.threshold))
    window = STEPS_MAX + 2
    for counter, count in schedule.signals_per_step.items():
        if farthest.get(counter, 0) + window * count >= SPAN_MAX:
            far = f", and a threshold {farthest[counter]} from its step's start" if farthest.get(counter) else ""
            yield f"counter {counter} gets {count} signals a step{far}: {window} steps of it leave int32"
