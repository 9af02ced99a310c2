"""Short constructors for the parts of a model."""

from __future__ import annotations

from amk.ir.regions import POS, TOKENS, Region, linear
from amk.ir.schedule import Stream, Wait
from amk.ir.tasks import Read, Write

NEW = (linear(**{POS: 1}), linear(**{POS: 1, TOKENS: 1}))
PAST = (0, linear(**{POS: 1}))
SEEN = (0, linear(**{POS: 1, TOKENS: 1}))


def read(buffer: str, *box: tuple, version: int = 0, lag: int = 0) -> Read:
    return Read(region=Region(buffer=buffer, box=box), version=version, lag=lag)


def write(buffer: str, *box: tuple, version: int = 0) -> Write:
    return Write(region=Region(buffer=buffer, box=box), version=version)


def wait(counter: str, threshold: int) -> Wait:
    return Wait(counter=counter, threshold=threshold)


def stream(buffer: str, *box: tuple, gate: tuple[Wait, ...] = ()) -> Stream:
    return Stream(region=Region(buffer=buffer, box=box), gate=gate)
