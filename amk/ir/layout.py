"""How data lies in memory: one place, read by the packer, the code generator and the reference machine.

``gemv8x32`` is a [N, K] matrix cut into tiles of 8 rows by 32 columns, [N/8][K/32][8][32], zero-padded behind N and K.
A run of whole 8-row tiles is one contiguous piece, so a stage of the weight ring is one bulk copy, and a lane of
``mma.sync.m16n8k16`` finds its eight weights of a row in one 16-byte word. ``gemv8x64`` is the same of eight-bit
integers, for ``mma.sync.m16n8k32``: its tiles are of 64 columns, and have as many bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from amk.ir.buffers import Arrange, Buffer, Layout

TILE_ROWS = 8
TILE_COLUMNS = 32
LAYOUT_COLUMNS: dict[Layout, int] = {"gemv8x32": TILE_COLUMNS, "gemv8x64": 2 * TILE_COLUMNS}
"""Columns of a tile."""


def tiles_summed(consumer_warps: int, rows: int, rows_max: int) -> int:
    """Tiles of a GEMV that a worker stores at once, in a step of ``rows`` rows where a step may have ``rows_max``.

    ``GemvPieces::tiles_summed`` of csrc/vm/stream.cuh: a worker keeps four tiles' sums of each warp for the longest
    step, in quads of warps, and in two halves for a step of one row.
    """
    each = (consumer_warps + 3) // 4 * 4
    kept = max(4 * consumer_warps * rows_max * TILE_ROWS, 2 * TILE_ROWS * each)
    return kept // (2 if rows == 1 else 1) // (rows * TILE_ROWS * each)


def stored_shape(buffer: Buffer) -> tuple[int, ...]:
    """Shape of the allocation, padding included."""
    if buffer.layout == "plain":
        return buffer.shape
    rows, columns = buffer.shape
    width = LAYOUT_COLUMNS[buffer.layout]
    return (-(-rows // TILE_ROWS), -(-columns // width), TILE_ROWS, width)


def pack(buffer: Buffer, logical: NDArray[np.generic]) -> NDArray[np.generic]:
    """The stored form of a logical array of shape ``buffer.shape``; any dtype."""
    if buffer.layout == "plain":
        return np.ascontiguousarray(logical)
    row_tiles, column_tiles, _, width = stored_shape(buffer)
    rows, columns = logical.shape
    padded = np.zeros((row_tiles * TILE_ROWS, column_tiles * width), dtype=logical.dtype)
    padded[:rows, :columns] = logical
    tiles = padded.reshape(row_tiles, TILE_ROWS, column_tiles, width)
    return np.ascontiguousarray(tiles.transpose(0, 2, 1, 3))


def unpack(buffer: Buffer, stored: NDArray[np.generic]) -> NDArray[np.generic]:
    """The logical array of a stored one: the inverse of ``pack``."""
    if buffer.layout == "plain":
        return stored
    row_tiles, column_tiles, _, width = stored_shape(buffer)
    rows, columns = buffer.shape
    matrix = stored.transpose(0, 2, 1, 3).reshape(row_tiles * TILE_ROWS, column_tiles * width)
    return matrix[:rows, :columns]


def arrange(parts: Sequence[NDArray[np.generic]], how: Arrange) -> NDArray[np.generic]:
    """One logical array of the checkpoint tensors that make it up; ValueError if they do not fit together."""
    if len(parts) == 1:
        return parts[0]
    if how == "stack":
        return np.concatenate(parts, axis=0)
    return np.stack(parts, axis=1).reshape(-1, *parts[0].shape[1:])
