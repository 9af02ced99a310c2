"""A checkpoint on a chip: every buffer of a schedule in one allocation, weights packed as the kernel reads them.

Tensors are read, packed and copied one at a time, so that no more than the largest is ever held beside the checkpoint.
"""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray

from amk.codegen.encode import stored_bytes
from amk.interpreter.memory import LoadRope, LoadTensor, integers, loaded
from amk.ir.buffers import Arrange, Buffer, QuantizedSource, RopeSource, Source
from amk.ir.layout import stored_shape
from amk.ir.schedule import Schedule
from amk.runtime.chip import ALIGN, Chip


class Placed:
    """The buffers of ``schedule`` on ``chip``, each at a multiple of ``ALIGN``; what lies between two is guarded.

    Attributes
    ----------
    address
        Address of each buffer.
    host
        Buffers that lie in pinned host memory, so that they are read while a launch runs: the tokens.
    """

    def __init__(self, schedule: Schedule, chip: Chip, load: LoadTensor, rope: LoadRope, *, head_stride: int) -> None:
        sizes = {b.id: stored_bytes(schedule, b.id, head_stride=head_stride) for b in schedule.buffers}
        watched = [b.id for b in schedule.buffers if b.kind == "output" and b.dtype == "i32"]
        self.host = {name: chip.pinned(sizes[name] // 4) for name in watched}
        self.address = {name: pinned.address for name, pinned in self.host.items()}
        spans = {b.id: _up(sizes[b.id] + chip.gap, ALIGN) for b in schedule.buffers if b.id not in self.host}
        at = chip.memory(sum(spans.values()))
        for name, span in spans.items():
            self.address[name] = at
            if span > sizes[name]:
                chip.guard(at + sizes[name], span - sizes[name])
            at += span
        for buffer in schedule.buffers:
            data = contents(buffer, load, rope)
            if data is not None:
                chip.upload(self.address[buffer.id], data)


def contents(buffer: Buffer, load: LoadTensor, rope: LoadRope) -> NDArray[Any] | None:
    """What a buffer holds before the first launch, as it is stored; None for zeros."""
    match buffer.source:
        case None:
            return None
        case RopeSource(table=table):
            return rope(table, buffer.shape[0])
        case Source() as source:
            # numpy has no bf16: its bits travel as 16-bit words.
            held = torch.bfloat16 if buffer.dtype == "bf16" else torch.float32
            parts = [part.contiguous() for part in loaded(source, load, held)]
            bits = [part.view(torch.int16) if held == torch.bfloat16 else part for part in parts]
            return packed(buffer, bits, source.arrange)
        case QuantizedSource() as quantized:
            return packed(buffer, [torch.from_numpy(integers(quantized, load))], "stack")


def packed(buffer: Buffer, parts: list[torch.Tensor], how: Arrange) -> NDArray[Any]:
    """``layout.pack`` of ``layout.arrange``, by torch, which spreads the copy over the processor's cores."""
    if len(parts) == 1:
        whole = parts[0]
    else:
        whole = torch.cat(parts) if how == "stack" else torch.stack(parts, dim=1).flatten(0, 1)
    if buffer.layout == "plain":
        return whole.numpy()
    row_tiles, column_tiles, tile_rows, tile_columns = stored_shape(buffer)
    rows, columns = row_tiles * tile_rows, column_tiles * tile_columns
    if tuple(whole.shape) != (rows, columns):
        whole = torch.nn.functional.pad(whole, (0, columns - whole.shape[1], 0, rows - whole.shape[0]))
    tiles = whole.view(row_tiles, tile_rows, column_tiles, tile_columns).transpose(1, 2)
    stored: NDArray[Any] = tiles.contiguous().numpy()
    return stored


def _up(value: int, unit: int) -> int:
    """``value`` rounded up to a multiple of ``unit``."""
    return -(-value // unit) * unit
