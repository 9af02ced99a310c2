"""What a task touches, and the base of the task kinds, which derive it from their parameters."""

from __future__ import annotations

from collections.abc import Mapping

from amk.ir.buffers import ITEM_BYTES, Buffer, Cost, Operand
from amk.ir.record import Record
from amk.ir.regions import POS, TOKENS, Box, Env, Interval, Region, linear, volume

Buffers = Mapping[str, Buffer]

ALL_ROWS: Interval = (0, linear(**{TOKENS: 1}))
LAST_ROW: Interval = (linear(-1, **{TOKENS: 1}), linear(**{TOKENS: 1}))
NEW_POSITIONS: Interval = (linear(**{POS: 1}), linear(**{POS: 1, TOKENS: 1}))
PAST_POSITIONS: Interval = (0, linear(**{POS: 1}))
NEXT_POSITION: Interval = (linear(**{POS: 1, TOKENS: 1}), linear(1, **{POS: 1, TOKENS: 1}))


class Read(Record):
    """A read of version ``version`` of this step (``lag`` 0) or of the step before (``lag`` 1)."""

    region: Region
    version: int = 0
    lag: int = 0


class Write(Record):
    """A write that makes version ``version`` of this step."""

    region: Region
    version: int = 0


def read(operand: Operand, *box: Interval) -> Read:
    return Read(region=Region(buffer=operand.buffer, box=box), version=operand.version, lag=operand.lag)


def write(operand: Operand, *box: Interval) -> Write:
    return Write(region=Region(buffer=operand.buffer, box=box), version=operand.version)


def whole(buffer: Buffer) -> Box:
    return tuple((0, size) for size in buffer.shape)


class TaskKind(Record, tag_field="kind"):
    """Base of the kinds."""

    def reads(self, buffers: Buffers) -> tuple[Read, ...]:
        """Data read after the task's waits, in the order of its fields."""
        raise NotImplementedError

    def writes(self, buffers: Buffers) -> tuple[Write, ...]:
        """Data written, all of it, always."""
        raise NotImplementedError

    def streams(self, buffers: Buffers) -> tuple[Region, ...]:
        """Data that the worker's producer may read ahead of the task."""
        return ()

    def macs(self, env: Env) -> int:
        """Multiply-adds of one step."""
        return 0

    def cost(self, buffers: Buffers, env: Env) -> Cost:
        """Bytes moved and multiply-adds of one step, with ``env`` giving the symbols."""

        def size(region: Region) -> int:
            return volume(region.box, env) * ITEM_BYTES[buffers[region.buffer].dtype]

        return Cost(
            stream_bytes=sum(size(region) for region in self.streams(buffers)),
            read_bytes=sum(size(read.region) for read in self.reads(buffers)),
            write_bytes=sum(size(write.region) for write in self.writes(buffers)),
            macs=self.macs(env),
        )
