"""The machine's memory: one torch tensor a buffer, filled from a checkpoint.

Weights are bf16 values, or integers, held in float32: products are exact and sums are float32, as in the kernel.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from amk.errors import NotYetError
from amk.ir.buffers import Buffer, Dtype, QuantizedSource, RopeSource, Source
from amk.ir.layout import arrange
from amk.ir.quantize import quantized, scales
from amk.ir.schedule import Schedule

Memory = dict[str, torch.Tensor]
LoadTensor = Callable[[str], torch.Tensor]
LoadRope = Callable[[int, int], NDArray[np.float32]]

_HELD_AS: dict[Dtype, torch.dtype] = {"bf16": torch.bfloat16, "f32": torch.float32, "i32": torch.int32}


def allocate(schedule: Schedule, load: LoadTensor, rope: LoadRope) -> Memory:
    """Every buffer of ``schedule``, in its logical shape.

    Parameters
    ----------
    load
        Checkpoint tensor by name, in the file's dtype; weights are rounded to bf16 once, gains kept in float32.
    rope
        (number of the rotary table, positions) -> [positions, 2, rotary_dim/2] cos and sin.
    """
    return {buffer.id: _fill(buffer, load, rope) for buffer in schedule.buffers}


def _fill(buffer: Buffer, load: LoadTensor, rope: LoadRope) -> torch.Tensor:
    match buffer.source:
        case Source() as source:
            parts = [part.to(torch.float32).numpy() for part in loaded(source, load, _HELD_AS[buffer.dtype])]
            return torch.from_numpy(np.ascontiguousarray(arrange(parts, source.arrange))).reshape(buffer.shape)
        case QuantizedSource() as source:
            return torch.from_numpy(integers(source, load).astype(np.float32)).reshape(buffer.shape)
        case RopeSource(table=table):
            return torch.from_numpy(rope(table, buffer.shape[0])).reshape(buffer.shape)
        case None:
            return _unwritten(buffer)


def loaded(source: Source, load: LoadTensor, dtype: torch.dtype) -> list[torch.Tensor]:
    """The parts of a buffer, rounded to ``dtype``: the rows that are taken of each tensor."""
    parts = [load(name) for name in source.tensors]
    if source.rows:
        parts = [part[low:high] for part, (low, high) in zip(parts, source.rows, strict=True)]
    if source.plus:
        parts = [part.to(torch.float32) + source.plus for part in parts]
    return [part.to(dtype) for part in parts]


def integers(source: QuantizedSource, load: LoadTensor) -> NDArray[np.int8] | NDArray[np.float32]:
    """The integers of a matrix, or their scales.

    Raises
    ------
    NonFiniteWeightError
        A weight is NaN or infinite.
    """
    weights, group = source.weights, source.quantization.group
    made = []
    for name, part in zip(weights.tensors, loaded(weights, load, torch.float32), strict=True):
        plain = part.numpy()
        scale = scales(plain, group=group, name=name)
        made.append(scale if source.holds == "scales" else quantized(plain, scale, group=group))
    return np.ascontiguousarray(arrange(made, weights.arrange))


def _unwritten(buffer: Buffer) -> torch.Tensor:
    """What nobody has written must not look like an answer."""
    if buffer.dtype not in _HELD_AS:
        fix = "keep activations and caches in bf16 or f32"
        raise NotYetError(feature=f"the dtype {buffer.dtype} of the buffer {buffer.id!r}", fix=fix)
    held = _HELD_AS[buffer.dtype]
    return torch.full(buffer.shape, -1 if held == torch.int32 else torch.nan, dtype=held)
