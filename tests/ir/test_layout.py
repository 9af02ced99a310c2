"""Packing: every element has one place, padding is zero, and what was packed comes back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amk.ir.buffers import Buffer, Layout
from amk.ir.layout import arrange, pack, stored_shape, unpack


def matrix(rows: int, columns: int, layout: Layout = "gemv8x32") -> Buffer:
    return Buffer(id="w", kind="weight", dtype="bf16", shape=(rows, columns), layout=layout)


def numbered(rows: int, columns: int) -> np.ndarray:
    """An array whose every element differs from the others and from padding."""
    return np.arange(1, rows * columns + 1, dtype=np.int32).reshape(rows, columns)


sizes = st.integers(1, 70)


@given(sizes, sizes, st.sampled_from(["plain", "gemv8x32"]))
def test_unpack_undoes_pack(rows: int, columns: int, layout: Layout) -> None:
    buffer, logical = matrix(rows, columns, layout), numbered(rows, columns)
    stored = pack(buffer, logical)
    assert stored.shape == stored_shape(buffer)
    assert stored.flags.c_contiguous
    assert stored.dtype == logical.dtype
    np.testing.assert_array_equal(unpack(buffer, stored), logical)


@pytest.mark.parametrize(("rows", "columns"), [(8, 32), (16, 64), (9, 33), (1, 1), (7, 31), (24, 40), (97, 100)])
def test_an_element_lies_where_the_formula_says(rows: int, columns: int) -> None:
    logical = numbered(rows, columns)
    flat = pack(matrix(rows, columns), logical).reshape(-1)
    column_tiles = (columns + 31) // 32
    taken = set()
    for n in range(rows):
        for k in range(columns):
            place = (((n // 8) * column_tiles + k // 32) * 8 + n % 8) * 32 + k % 32
            assert flat[place] == logical[n, k]
            taken.add(place)
    padding = [place for place in range(flat.size) if place not in taken]
    assert len(taken) == rows * columns
    assert not flat[padding].any()


def test_whole_row_tiles_are_one_contiguous_piece() -> None:
    logical = numbered(40, 70)
    whole = pack(matrix(40, 70), logical)
    part = pack(matrix(16, 70), logical[8:24])
    np.testing.assert_array_equal(whole.reshape(-1)[part.size // 2 : part.size // 2 + part.size], part.reshape(-1))


def test_plain_keeps_the_shape_of_any_rank() -> None:
    buffer = Buffer(id="kv", kind="kv", dtype="f32", shape=(2, 5, 3))
    logical = np.arange(30, dtype=np.float32).reshape(2, 5, 3)
    assert stored_shape(buffer) == (2, 5, 3)
    np.testing.assert_array_equal(pack(buffer, logical), logical)
    np.testing.assert_array_equal(unpack(buffer, logical), logical)


def test_stack_puts_tensors_one_after_another() -> None:
    parts = [numbered(2, 3), numbered(1, 3) + 100, numbered(3, 3) + 200]
    np.testing.assert_array_equal(arrange(parts, "stack"), np.vstack(parts))


def test_interleave_alternates_rows() -> None:
    gate, up = numbered(5, 3), numbered(5, 3) + 100
    both = arrange([gate, up], "interleave")
    assert both.shape == (10, 3)
    for row in range(5):
        np.testing.assert_array_equal(both[2 * row], gate[row])
        np.testing.assert_array_equal(both[2 * row + 1], up[row])


def test_one_tensor_is_itself_under_any_arrangement() -> None:
    vector = np.arange(4)
    assert arrange([vector], "stack") is vector
    assert arrange([vector], "interleave") is vector


@pytest.mark.parametrize(
    ("shapes", "how"), [(((2, 3), (2, 4)), "stack"), (((2, 3), (3, 3)), "interleave"), (((2, 3), (2, 4)), "interleave")]
)
def test_tensors_that_do_not_fit_together_are_refused(shapes: tuple[tuple[int, int], ...], how: str) -> None:
    with pytest.raises(ValueError, match=r"(must match exactly|same shape)"):
        arrange([np.zeros(shape) for shape in shapes], how)
