"""Tasks in words: what ``amk inspect`` prints and what its page shows. A file's own text is made harmless here."""

from __future__ import annotations

import re
from collections.abc import Iterator

from amk.ir.buffers import Operand
from amk.ir.record import Record
from amk.ir.regions import show_region
from amk.ir.schedule import Stream, Task, Wait
from amk.ir.tasks import Buffers, Read, Write

_LAYER = re.compile(r"^L\d+\.(?=.)")


def printable(text: str) -> str:
    """``text`` with control, bidirectional and half characters written as escapes: a terminal or a page obeys none."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def role_of(hop: str) -> str:
    """What a hop does, whatever its layer: ``qkv`` for ``L3.qkv``."""
    return _LAYER.sub("", hop, count=1)


def kind_of(task: Task) -> str:
    """The name of the task's kind, as in the file."""
    return _tag(task.op)


def parameters(record: Record, buffers: Buffers) -> Iterator[tuple[str, str]]:
    """The fields of a task kind as (name, text), those of its parts as ``epilogue.out``; absent parts are skipped."""
    for name in record.__struct_fields__:
        value = getattr(record, name)
        if isinstance(value, Operand):
            yield name, printable(value.buffer) + _version(value.buffer, value.version, value.lag, buffers)
        elif isinstance(value, Record):
            yield name, _tag(value)
            yield from ((f"{name}.{inner}", text) for inner, text in parameters(value, buffers))
        elif isinstance(value, tuple):
            yield name, ":".join(map(str, value))
        elif value is not None:
            yield name, printable(str(value))


def show_access(access: Read | Write | Stream, buffers: Buffers) -> str:
    """A read, write or stream: ``hidden[0:tokens, 0:64] v1``. Of a buffer with one version, none is named."""
    name, region = access.region.buffer, printable(show_region(access.region))
    match access:
        case Read(version=version, lag=lag):
            return region + _version(name, version, lag, buffers)
        case Write(version=version):
            return region + _version(name, version, 0, buffers)
        case Stream(gate=gate):
            return region + (f" after {', '.join(map(show_wait, gate))}" if gate else "")


def show_wait(wait: Wait) -> str:
    """A wait: ``L0.qkv >= 120``."""
    return f"{printable(wait.counter)} >= {wait.threshold}"


def _tag(record: Record) -> str:
    return str(record.__struct_config__.tag)


def _version(buffer: str, version: int, lag: int, buffers: Buffers) -> str:
    text = "" if version == 0 and buffer in buffers and buffers[buffer].versions == 1 else f" v{version}"
    return text + (" of the step before" if lag == 1 else f" of {lag} steps before" if lag else "")
