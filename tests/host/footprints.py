"""What a kernel on this processor touched, task by task and byte by byte, against what its schedule declares.

The program logs every access to the schedule's buffers and counters (csrc/host/watch/footprints.cc). A task's writes
are to be its declared writes, all of them and nothing else; its reads are to lie within its declared reads and streams.
Padding that the stored form of a weight or of a cached row adds is nobody's data, and may be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from amk.codegen import abi
from amk.codegen.encode import stored_bytes, word_bytes
from amk.ir.layout import pack
from amk.ir.regions import Env, Region, concrete
from amk.ir.schedule import Schedule, Task
from amk.runtime.launch import KernelBackend

RECORD = np.dtype(
    [("task", "<u4"), ("kind", "<u4"), ("block", "<u4"), ("thread", "<u4"), ("address", "<u8"), ("bytes", "<u8")]
)
READ, WRITE, SIGNAL, ACQUIRE, COPY = range(5)

COUNTERS = "the counters"

Records = NDArray[np.void]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stray:
    """Bytes of a buffer that a task touched against its declaration, or did not write though it declares to."""

    task: str
    what: str
    buffer: str
    first: int
    count: int

    def __str__(self) -> str:
        return f"{self.task} {self.what}: {self.count} bytes of {self.buffer}, the first at {self.first}"


class Log:
    """The log of a backend on a program that writes one, launch by launch."""

    def __init__(self, backend: KernelBackend, path: Path) -> None:
        self.backend = backend
        self.path = path
        self.seen = 0
        path.touch()
        schedule, stride = backend.schedule, backend.config.head_stride
        spans = {name: (at, stored_bytes(schedule, name, head_stride=stride)) for name, at in _addresses(backend)}
        spans[COUNTERS] = (backend._counters, 4 * abi.COUNTER_STRIDE * len(schedule.counters))
        self.names = sorted(spans, key=lambda name: spans[name][0])
        self.starts = np.array([spans[name][0] for name in self.names], dtype=np.uint64)
        self.sizes = {name: size for name, (_, size) in spans.items()}
        for address, size in spans.values():
            # With what lies behind each, where nobody may be.
            backend.chip.observe(address, size + backend.chip.gap // 2)

    def launch(self, *, pos: int, tokens: int, steps: int = 1) -> Records:
        """Run a launch; what it logged, a block's records in the order in which they happened."""
        for _ in self.backend.run(pos=pos, tokens=tokens, steps=steps):
            pass
        data = self.path.read_bytes()[self.seen :]
        self.seen += len(data)
        records = np.frombuffer(data, dtype=RECORD)
        assert len(records), "nothing was logged"
        return records

    def places(self, records: Records) -> NDArray[np.int64]:
        """The number in ``names`` of the buffer that each record is of."""
        return np.searchsorted(self.starts, records["address"], side="right") - 1


def _addresses(backend: KernelBackend) -> list[tuple[str, int]]:
    return list(backend.placed.address.items())


def strays(log: Log, records: Records, env: Env) -> Iterator[Stray]:
    """Everything that a launch of one step touched against the declarations of its schedule."""
    data = np.unique(
        records[(records["kind"] != SIGNAL) & (records["kind"] != ACQUIRE)][["task", "kind", "address", "bytes"]]
    )
    tasks = log.backend._queues.names
    if unknown := int((data["task"] >= len(tasks)).sum()):
        yield Stray(task="no task", what="touches", buffer="?", first=0, count=unknown)
    for number, name in enumerate(tasks):
        yield from _strays_of(log, log.backend.schedule.task[name], data[data["task"] == number], env)


def _strays_of(log: Log, task: Task, records: Records, env: Env) -> Iterator[Stray]:
    reads = [*(read.region for read in task.reads), *(stream.region for stream in task.streams)]
    writes = [write.region for write in task.writes]
    touched: dict[tuple[str, bool], Mask] = {}
    for place, record in zip(log.places(records).tolist(), records.tolist(), strict=True):
        _, kind, address, size = record
        name = log.names[place]
        offset = address - int(log.starts[place])
        if offset + size > log.sizes[name]:
            yield Stray(task=task.id, what="touches what lies behind", buffer=name, first=offset, count=size)
            continue
        mask = touched.setdefault((name, kind == WRITE), np.zeros(log.sizes[name], dtype=np.bool_))
        mask[offset : offset + size] = True
    for buffer in sorted({name for name, _ in touched} | {region.buffer for region in writes}):
        nothing = np.zeros(log.sizes[buffer], dtype=np.bool_)
        read, written = touched.get((buffer, False), nothing), touched.get((buffer, True), nothing)
        may_read = declared(log, reads, buffer, env, padding=True)
        to_write = declared(log, writes, buffer, env, padding=False)
        for what, mask in (
            ("reads undeclared", read & ~may_read),
            ("writes undeclared", written & ~to_write),
            ("does not write", to_write & ~written),
        ):
            if mask.any():
                first, count = int(mask.argmax()), int(mask.sum())
                yield Stray(task=task.id, what=what, buffer=buffer, first=first, count=count)


def declared(log: Log, regions: list[Region], name: str, env: Env, *, padding: bool) -> Mask:
    """Which stored bytes of a buffer the regions hold; with ``padding``, what the stored form adds to them too."""
    if name == COUNTERS:
        return np.zeros(log.sizes[name], dtype=np.bool_)
    schedule: Schedule = log.backend.schedule
    buffer = schedule.buffer[name]
    logical = np.zeros(buffer.shape, dtype=np.bool_)
    for region in regions:
        if region.buffer == name:
            logical[tuple(slice(low, max(low, high)) for low, high in concrete(region.box, env))] = True
    if buffer.kind == "kv":
        pad = log.backend.config.head_stride - buffer.shape[-1]
        stored = np.concatenate((logical, np.repeat(logical[..., -1:] & padding, pad, axis=-1)), axis=-1)
    else:
        stored = pack(buffer, logical)
        if padding:
            stored = stored | ~pack(buffer, np.ones_like(logical))
    return np.repeat(stored.reshape(-1), word_bytes(buffer))
