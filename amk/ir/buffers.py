"""Memory that tasks read and write: buffers, and where a weight buffer comes from in the checkpoint."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import msgspec

from amk.ir.record import Record

Kind = Literal["weight", "const", "kv", "state", "activation", "input", "output"]
Dtype = Literal["bf16", "f32", "i32", "i8"]
Layout = Literal["plain", "gemv8x32", "gemv8x64"]
Arrange = Literal["stack", "interleave"]

ITEM_BYTES: dict[Dtype, int] = {"bf16": 2, "f32": 4, "i32": 4, "i8": 1}

Size = Annotated[int, msgspec.Meta(ge=1, le=2**40)]


class Source(Record, tag_field="kind", tag="tensors"):
    """The checkpoint tensors that fill a weight or const buffer.

    ``stack`` puts the tensors' rows one after another; ``interleave`` alternates them row by row, so that row r of the
    gate and row r of the up projection sit side by side in one tile. ``rows`` are the rows of each tensor that are
    taken, all of them where it is empty; ``plus`` is added to every element, in float32.
    """

    tensors: tuple[str, ...]
    arrange: Arrange = "stack"
    rows: tuple[tuple[int, int], ...] = ()
    plus: float = 0.0


class Quantization(Record):
    """How matrices become integers of eight bits: symmetric, rounded to the nearest (``amk.ir.quantize``).

    Attributes
    ----------
    group
        Columns that share a scale, the last group of a row perhaps fewer; 0 for all of a row.
    """

    group: Annotated[int, msgspec.Meta(ge=0)] = 0


class QuantizedSource(Record, tag_field="kind", tag="quantized"):
    """The integers [N, K] that stand for what ``weights`` gives, or their scales [N, G]."""

    weights: Source
    quantization: Quantization
    holds: Literal["values", "scales"]


class RopeSource(Record, tag_field="kind", tag="rope"):
    """The model's rotary table number ``table``: row ``pos`` holds cos and sin of each angle."""

    table: int = 0


class Buffer(Record):
    """One allocation, disjoint from every other.

    Attributes
    ----------
    kind
        ``weight`` and ``const`` never change; ``input`` is set before a launch and never written in it; ``kv`` grows by
        the step's rows; ``state`` carries over from step to step; ``activation`` lives within a step; ``output`` is
        read by the host.
    shape
        Logical elements on each axis. Layouts pad behind it; a region never names padding.
    granule
        Elements along the last axis that are stored together; writes are whole granules.
    tagged, versions
        A tagged buffer's words carry an epoch; ``versions`` is the number of times a word is written in a step.
    fenced
        Tag waits on this buffer are acquires and its stores releases, so that they order other data too.
    """

    id: str
    kind: Kind
    dtype: Dtype
    shape: tuple[Size, ...]
    layout: Layout = "plain"
    source: Source | QuantizedSource | RopeSource | None = None
    device: int = 0
    granule: Size = 1
    versions: Size = 1
    tagged: bool = False
    fenced: bool = False

    @property
    def bytes(self) -> int:
        """Bytes of the logical elements."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


class Operand(Record):
    """A buffer as a task names it: which of the step's versions, and of this step (lag 0) or the last one (lag 1)."""

    buffer: str
    version: int = 0
    lag: int = 0


def first_epoch(operand: Operand, versions: int) -> int:
    """The epoch of a tagged word in step 0 of the first launch; each step adds ``versions``."""
    return 1 + operand.version - operand.lag * versions


class Cost(Record):
    """What one task moves and multiplies, for one step.

    ``stream_bytes`` come through the ring, ``read_bytes`` and ``write_bytes`` are activations, ``macs`` are
    multiply-adds.
    """

    stream_bytes: int
    read_bytes: int
    write_bytes: int
    macs: int
