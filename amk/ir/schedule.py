"""The Schedule: everything that one launch does, as data. What a schedule file holds, and all that it holds.

Each worker runs its queue in order, once per step, and blocks on a task's waits. The file is canonical JSON (sorted
keys, no white space), versioned, and has one digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from amk.errors import MalformedScheduleError, ScheduleVersionError, UnreadableInputError
from amk.ir.buffers import Buffer
from amk.ir.record import Record
from amk.ir.regions import Region
from amk.ir.tasks import AnyKind, Read, Write
from amk.target import Target

SCHEDULE_VERSION = 1
MAX_FILE_BYTES = 256 * 1024 * 1024

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]


class Symbol(Record):
    """A runtime integer and its inclusive range."""

    name: str
    low: Int32
    high: Int32


class Counter(Record):
    """A 32-bit monotonic counter in device memory."""

    id: str
    scope: Literal["gpu", "system"] = "gpu"
    device: int = 0


class Wait(Record):
    """Block until the counter's signals in this launch reach ``threshold + step * (its signals a step)``.

    A threshold of n (its signals a step) joins this step's signals; 0 joins the last step's, and is true at step 0.
    """

    counter: str
    threshold: Int32


class Stream(Record):
    """Data the producer reads ahead of its task; ``gate`` are the producer's own waits before it may."""

    region: Region
    gate: tuple[Wait, ...] = ()


class Task(Record):
    """One unit of a worker's queue. ``signals`` names counters, each occurrence adding one."""

    id: str
    op: AnyKind
    reads: tuple[Read, ...]
    writes: tuple[Write, ...]
    streams: tuple[Stream, ...] = ()
    waits: tuple[Wait, ...] = ()
    signals: tuple[str, ...] = ()


class Queue(Record):
    """A worker, (device, index), and the ids of its tasks in order."""

    index: int
    tasks: tuple[str, ...]
    device: int = 0


class Schedule(Record, dict=True):
    """One launch of one program on one chip.

    Attributes
    ----------
    target
        The chip it is made for: workers, shared memory, ring, drift.
    symbols
        Ranges of ``pos`` and ``tokens``. A launch runs S steps of m = ``tokens`` rows from position pos0, with
        ``pos0 + S*m <= max_context`` and ``S <= steps_max``.
    """

    version: int
    target: Target
    symbols: tuple[Symbol, ...]
    buffers: tuple[Buffer, ...]
    counters: tuple[Counter, ...]
    tasks: tuple[Task, ...]
    queues: tuple[Queue, ...]
    max_context: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    steps_max: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    devices: int = 1
    sequences: int = 1

    @cached_property
    def buffer(self) -> Mapping[str, Buffer]:
        """Buffers by id."""
        return {buffer.id: buffer for buffer in self.buffers}

    @cached_property
    def task(self) -> Mapping[str, Task]:
        """Tasks by id."""
        return {task.id: task for task in self.tasks}

    @cached_property
    def signals_per_step(self) -> Mapping[str, int]:
        """Signals that each counter receives in a step, with multiplicity."""
        totals = {counter.id: 0 for counter in self.counters}
        for task in self.tasks:
            for counter in task.signals:
                totals[counter] = totals.get(counter, 0) + 1
        return totals

    def symbol(self, name: str) -> Symbol:
        """The symbol called ``name``; KeyError if there is none."""
        for symbol in self.symbols:
            if symbol.name == name:
                return symbol
        raise KeyError(name)

    def to_json(self) -> bytes:
        """Canonical JSON."""
        return msgspec.json.encode(self, order="sorted")

    def digest(self) -> str:
        """sha256 of the canonical JSON, in hex."""
        return hashlib.sha256(self.to_json()).hexdigest()

    @classmethod
    def from_json(cls, data: bytes, *, path: str | Path = "<memory>") -> Schedule:
        """Read a schedule, strictly.

        Raises
        ------
        MalformedScheduleError
            Not JSON, a duplicate or unknown key, a wrong type, NaN, a number out of range, or too deep or large.
        ScheduleVersionError
            A version this amk does not read.
        """

        def malformed(why: object) -> MalformedScheduleError:
            return MalformedScheduleError(path=path, why=why, version=SCHEDULE_VERSION)

        if len(data) > MAX_FILE_BYTES:
            raise malformed(f"it has more than {MAX_FILE_BYTES} bytes")
        try:
            found = msgspec.json.decode(data, type=_Version).version
            if found != SCHEDULE_VERSION:
                raise ScheduleVersionError(path=path, found=found, version=SCHEDULE_VERSION)
            schedule = msgspec.json.decode(data, type=cls, strict=True)
            # A file in canonical form cannot repeat a key; any other is looked at the slow way.
            if schedule.to_json() != data:
                json.loads(data, object_pairs_hook=_unique)
        except RecursionError:
            raise malformed("it is nested too deeply") from None
        except (msgspec.MsgspecError, ValueError) as error:
            raise malformed(error) from None
        return schedule

    @classmethod
    def load(cls, path: Path) -> Schedule:
        """Read a schedule file; raises as ``from_json``, and UnreadableInputError if the file cannot be read."""
        try:
            with path.open("rb") as stream:
                data = stream.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            why = error.strerror or str(error)
            raise UnreadableInputError(path=path, why=why, fix="pass the path of a schedule.json file") from error
        return cls.from_json(data, path=path)


def _unique(pairs: list[tuple[str, object]]) -> None:
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twice!r} occurs twice in one object")


class _Version(msgspec.Struct):
    """The one field that is read first; the others are skipped."""

    version: int
