"""Weights as eight-bit integers: symmetric, a float32 scale for each output row, or for each group of its columns.

Legend: N rows of the weight, K columns, G groups of a row; one, where a row has one scale.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np
from numpy.typing import NDArray

from amk.ir.errors import NonFiniteWeightError

LEVELS: Final = 127
"""The greatest magnitude: symmetric, so -128 is not used."""

GROUP_SIZES: Final = (64, 128)
"""Columns that may share a scale, where a row does not have one of its own."""

_AT_ONCE: Final = 1 << 20
"""Elements that a thread takes at once: they stay in its cache."""

Values = NDArray[np.int8]
Floats = NDArray[np.float32]


def groups(columns: int, group: int) -> int:
    """Scales of a row of so many columns; ``group`` 0 for one."""
    return -(-columns // group) if group else 1


def scales(weight_NK: Floats, *, group: int = 0, name: str = "") -> Floats:
    """float32 [N, G]: a 127th of the greatest magnitude of each group.

    Parameters
    ----------
    group
        Columns that share a scale, the last group of a row perhaps fewer; 0 for all of a row.
    name
        Of the tensor, for the error.

    Raises
    ------
    NonFiniteWeightError
        A weight is NaN or infinite.
    """
    rows, columns = weight_NK.shape
    found_NG = np.empty((rows, groups(columns, group)), dtype=np.float32)
    width = group or columns

    def fill(low: int, high: int) -> None:
        for number in range(found_NG.shape[1]):
            some = weight_NK[low:high, number * width : (number + 1) * width]
            found_NG[low:high, number] = np.maximum(some.max(axis=1), -some.min(axis=1))

    _by_rows(weight_NK, fill)
    if not np.isfinite(found_NG).all():
        raise NonFiniteWeightError(tensor=name, row=int(np.argmin(np.isfinite(found_NG).all(axis=1))))
    return found_NG / np.float32(LEVELS)


def quantized(weight_NK: Floats, scale_NG: Floats, *, group: int = 0) -> Values:
    """int8 [N, K]: each weight over its scale, rounded to the nearest, ties to even; zero where the scale is zero."""
    made_NK = np.empty(weight_NK.shape, dtype=np.int8)
    width = group or weight_NK.shape[1]
    divisor_NG = np.where(scale_NG > 0, scale_NG, np.float32(1.0))

    def fill(low: int, high: int) -> None:
        for number in range(scale_NG.shape[1]):
            columns = slice(number * width, (number + 1) * width)
            steps = np.rint(weight_NK[low:high, columns] / divisor_NG[low:high, number, None])
            made_NK[low:high, columns] = np.clip(steps, -LEVELS, LEVELS)

    _by_rows(weight_NK, fill)
    return made_NK


def dequantized(value_NK: Values, scale_NG: Floats, *, group: int = 0) -> Floats:
    """The float32 weights [N, K] that values and scales stand for."""
    columns = value_NK.shape[1]
    return value_NK.astype(np.float32) * np.repeat(scale_NG, group or columns, axis=1)[:, :columns]


def rounded(weight_NK: Floats, *, group: int = 0, name: str = "") -> Floats:
    """``weight_NK`` as a kernel sees it that multiplies its integers; raises as ``scales`` does."""
    scale_NG = scales(weight_NK, group=group, name=name)
    return dequantized(quantized(weight_NK, scale_NG, group=group), scale_NG, group=group)


def _by_rows(weight_NK: Floats, fill: Callable[[int, int], None]) -> None:
    """``fill(low, high)`` for runs of rows that make up the whole, on the processor's cores."""
    rows, columns = weight_NK.shape
    each = max(1, _AT_ONCE // columns)
    begins = range(0, rows, each)
    ends = [min(begin + each, rows) for begin in begins]
    with ThreadPoolExecutor() as threads:
        list(threads.map(fill, begins, ends))  # raises what a thread has raised
