"""What the validator assumes of the virtual machine (docs/validator.md), checked on the log of a launch.

The log tells, for each worker, what its threads did in the order in which they did it. V1 to V4 are statements about
that order; seeds shuffle it. V5, which is about memory order, is ThreadSanitizer's to see.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from amk.codegen.supported import DRIFT
from tests.host.footprints import ACQUIRE, COPY, COUNTERS, READ, SIGNAL, WRITE, Log, Mask, Records

IN_LAUNCH = ("activation", "state", "kv", "output")
"""Kinds of buffers that are written in a launch."""


def broken(log: Log, records: Records) -> Iterator[str]:
    """Every obligation that some worker did not keep in a launch of one step."""
    schedule = log.backend.schedule
    # Words that only the host reads speak for themselves: they are no part of what a signal says.
    changing = {buffer.id for buffer in schedule.buffers if buffer.kind in IN_LAUNCH} - set(log.backend.placed.host)
    is_data = np.array([name in changing for name in log.names])[log.places(records)]
    is_counter = np.array([name == COUNTERS for name in log.names])[log.places(records)]
    consumers = 32 * log.backend.config.consumer_warps
    number = {name: at for at, name in enumerate(log.backend._queues.names)}
    kind, task = records["kind"], records["task"]
    consuming = (records["thread"] < consumers) & (kind != COPY)
    for worker, queue in enumerate(schedule.queues):
        here = records["block"] == worker
        at = partial(_places, {name: here & (task == number[name]) for name in queue.tasks})
        reads, writes = is_data & (kind == READ) & consuming, is_data & (kind == WRITE)
        signals, acquires = is_counter & (kind == SIGNAL), is_counter & (kind == ACQUIRE)
        for name in queue.tasks:
            yield from _signals(name, at(name, reads | writes), at(name, signals), len(schedule.task[name].signals))
            yield from _waits(name, at(name, acquires & consuming), at(name, reads), len(schedule.task[name].waits))
            gates = {gate for stream in schedule.task[name].streams for gate in stream.gate}
            copies = at(name, is_data & (kind == COPY))
            if len(copies):  # a split without rows streams nothing, and waits for nothing
                yield from _waits(name, at(name, acquires & ~consuming), copies, len(gates))
        for before, after in pairwise(queue.tasks):
            stored = at(after, writes | signals)
            if _early(at(before, writes | signals), stored):
                yield f"V1: {after} stores before {before} is published"
            if _early(at(before, reads), stored):
                yield f"V2: {after} stores before {before} is read"
        for before, after in zip(queue.tasks, queue.tasks[1 + DRIFT :], strict=False):
            if _early(at(before, reads | writes | signals), at(after, reads | writes)):
                yield f"V4: {after} begins before {before} is published"


def _places(mine: dict[str, Mask], name: str, which: Mask) -> NDArray[np.int64]:
    """Where in the log a task's records of a kind are."""
    return np.flatnonzero(mine[name] & which)


def _signals(name: str, accesses: NDArray[np.int64], signals: NDArray[np.int64], count: int) -> Iterator[str]:
    if len(signals) != count:
        yield f"V5: {name} signals {len(signals)} times, not {count}"
    if _early(accesses, signals):
        yield f"V2: {name} signals before its last access"


def _waits(name: str, acquires: NDArray[np.int64], reads: NDArray[np.int64], count: int) -> Iterator[str]:
    if len(acquires) < count:
        yield f"V3: {name} makes {len(acquires)} of its {count} waits"
    if _early(acquires, reads):
        yield f"V3: {name} reads before its waits are over"


def _early(first: NDArray[np.int64], second: NDArray[np.int64]) -> bool:
    """Whether something of ``second`` happened before something of ``first``."""
    return bool(len(first) and len(second) and second[0] < first[-1])
