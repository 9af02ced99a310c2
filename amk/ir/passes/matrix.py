"""The buffers of a hop's matrix: what fills them from the checkpoint, and how they are packed."""

from __future__ import annotations

from amk.ir.buffers import Buffer, Quantization, QuantizedSource, Source
from amk.ir.hops import GemvHop
from amk.ir.quantize import groups

SCALES = ".scales"


def matrix(hop: GemvHop, how: Quantization | None) -> tuple[Buffer, Buffer | None]:
    """The matrix of ``hop``, and its scales where it becomes integers.

    One tensor keeps its own name, so that a tied table is stored once.
    """
    tensors = tuple(part.weight for part in hop.parts)
    name = tensors[0] if len(tensors) == 1 else f"{hop.name}.weight"
    source, shape = Source(tensors=tensors, arrange=hop.arrange, rows=rows_taken(hop)), (hop.rows, hop.k)
    if how is None:
        return Buffer(id=name, kind="weight", dtype="bf16", shape=shape, layout="gemv8x32", source=source), None
    values = QuantizedSource(weights=source, quantization=how, holds="values")
    scales = QuantizedSource(weights=source, quantization=how, holds="scales")
    return (
        Buffer(id=name, kind="weight", dtype="i8", shape=shape, layout="gemv8x64", source=values),
        Buffer(id=name + SCALES, kind="const", dtype="f32", shape=(hop.rows, groups(hop.k, how.group)), source=scales),
    )


def rows_taken(hop: GemvHop) -> tuple[tuple[int, int], ...]:
    """The rows of each tensor that the hop takes; empty if it takes them all."""
    return () if all(part.whole for part in hop.parts) else tuple(part.rows for part in hop.parts)
