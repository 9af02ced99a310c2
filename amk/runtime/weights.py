"""A checkpoint on the device: every buffer of a schedule in one allocation, weights packed as the kernel reads them.

Tensors are read, packed and copied one at a time, so that no more than the largest is ever held beside the checkpoint.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from amk.codegen.encode import stored_bytes
from amk.interpreter.memory import LoadRope, LoadTensor
from amk.ir.buffers import Buffer, RopeSource, Source
from amk.ir.layout import arrange, pack
from amk.ir.schedule import Schedule
from amk.runtime.driver import DeviceMemory, PinnedMemory, upload

ALIGN = 256
"""Bytes; a bulk copy asks for 16, a line of L2 has 128."""


class Placed:
    """The buffers of ``schedule`` on the current context's device.

    Attributes
    ----------
    address
        Device address of each buffer.
    tokens
        The host's view of the token output, which lies in pinned memory so that it is read while a launch runs.
    """

    def __init__(self, schedule: Schedule, load: LoadTensor, rope: LoadRope, *, head_stride: int) -> None:
        self.address: dict[str, int] = {}
        self.tokens = PinnedMemory(1)
        sizes = {b.id: stored_bytes(schedule, b.id, head_stride=head_stride) for b in schedule.buffers}
        on_host = [b for b in schedule.buffers if b.kind == "output" and b.dtype == "i32"]
        offsets: dict[str, int] = {}
        total = 0
        for buffer in schedule.buffers:
            if buffer not in on_host:
                offsets[buffer.id] = total
                total += -(-sizes[buffer.id] // ALIGN) * ALIGN
        self.memory = DeviceMemory(total)
        self.address |= {name: self.memory.address + offset for name, offset in offsets.items()}
        for buffer in on_host:
            self.tokens.close()
            self.tokens = PinnedMemory(sizes[buffer.id] // 4)
            self.address[buffer.id] = self.tokens.address
        for buffer in schedule.buffers:
            data = contents(buffer, load, rope)
            if data is not None:
                upload(self.address[buffer.id], data)

    def close(self) -> None:
        """Free everything."""
        self.memory.close()
        self.tokens.close()


def contents(buffer: Buffer, load: LoadTensor, rope: LoadRope) -> NDArray[Any] | None:
    """What a buffer holds before the first launch, as it is stored; None for zeros."""
    match buffer.source:
        case None:
            return None
        case RopeSource():
            return rope(buffer.shape[0])
        case Source(tensors=names, arrange=how):
            convert = _bf16_bits if buffer.dtype == "bf16" else _float32
            return pack(buffer, arrange([convert(load(name)) for name in names], how))


def _bf16_bits(tensor: torch.Tensor) -> NDArray[Any]:
    """bf16, rounded to nearest if it is not bf16 already, as 16-bit words: numpy has no bf16."""
    words: NDArray[Any] = tensor.to(torch.bfloat16).contiguous().view(torch.int16).numpy()
    return words


def _float32(tensor: torch.Tensor) -> NDArray[np.float32]:
    values: NDArray[np.float32] = tensor.to(torch.float32).numpy()
    return values
