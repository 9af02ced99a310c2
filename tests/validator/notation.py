"""A short way to write access models down: ``task("A", waits="c>=2", signals="d", writes=[...])``."""

from __future__ import annotations

from collections.abc import Iterable

from amk.ir.buffers import Buffer
from amk.ir.regions import POS, TOKENS, Interval, Region, linear
from amk.ir.schedule import Stream, Wait
from amk.ir.tasks import Read, Write
from amk.validator import AccessModel, Node

NEW: Interval = (linear(**{POS: 1}), linear(**{POS: 1, TOKENS: 1}))
PAST: Interval = (0, linear(**{POS: 1}))
SEEN: Interval = (0, linear(**{POS: 1, TOKENS: 1}))
AT_POS: Interval = (linear(**{POS: 1}), linear(1, **{POS: 1}))
ROWS: Interval = (0, linear(**{TOKENS: 1}))
ONE: Interval = (0, 1)


def read(buffer: str, *box: Interval, v: int = 0, lag: int = 0) -> Read:
    return Read(region=Region(buffer=buffer, box=box or (ONE,)), version=v, lag=lag)


def write(buffer: str, *box: Interval, v: int = 0) -> Write:
    return Write(region=Region(buffer=buffer, box=box or (ONE,)), version=v)


def waits_of(text: str) -> tuple[Wait, ...]:
    pairs = (word.split(">=") for word in text.split())
    return tuple(Wait(counter=counter, threshold=int(threshold)) for counter, threshold in pairs)


def stream(buffer: str, *box: Interval, gate: str = "") -> Stream:
    return Stream(region=Region(buffer=buffer, box=box), gate=waits_of(gate))


def task(
    name: str,
    *,
    waits: str = "",
    signals: str = "",
    reads: Iterable[Read] = (),
    writes: Iterable[Write] = (),
    streams: Iterable[Stream] = (),
) -> Node:
    return Node(
        id=name,
        reads=tuple(reads),
        writes=tuple(writes),
        streams=tuple(streams),
        waits=waits_of(waits),
        signals=tuple(signals.split()),
    )


def state(name: str, *shape: int, versions: int = 1, tagged: bool = False, fenced: bool = False) -> Buffer:
    return Buffer(
        id=name, kind="state", dtype="f32", shape=shape or (1,), versions=versions, tagged=tagged, fenced=fenced
    )


def kv(name: str = "KV", *shape: int) -> Buffer:
    return Buffer(id=name, kind="kv", dtype="f32", shape=shape or (64,))


def model(
    *queues: list[Node],
    buffers: list[Buffer],
    steps: int = 4,
    context: int = 8,
    drift: int = 0,
    tokens: tuple[int, int] = (1, 1),
) -> AccessModel:
    return AccessModel(
        buffers=tuple(buffers),
        queues=tuple(tuple(queue) for queue in queues),
        max_context=context,
        steps_max=steps,
        tokens=tokens,
        drift=drift,
    )
