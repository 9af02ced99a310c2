"""Semantics in parts: the rounding to hi + lo, the cut into splits, the merge of splits, rotation."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from amk.interpreter.semantics import hi_lo, merge_splits, rotate
from amk.ir.tasks import ROWS_PER_SPLIT, active_splits, split_rows

normal = st.floats(-(2.0**100), 2.0**100, width=32).filter(lambda x: abs(x) > 2.0**-100)
past_and_splits = st.tuples(st.integers(0, 10_000), st.integers(1, 8))


# --- hi + lo ---------------------------------------------------------------------------------------------------------


@given(st.lists(normal, min_size=1, max_size=20))
def test_hi_lo_keeps_sixteen_bits(values: list[float]) -> None:
    x = torch.tensor(values, dtype=torch.float32)
    assert ((hi_lo(x) - x).abs() <= 2.0**-16 * x.abs()).all()
    assert torch.equal(hi_lo(-x), -hi_lo(x))


@given(st.integers(-(2**15), 2**15), st.integers(-60, 60))
def test_hi_lo_is_exact_on_sixteen_bits(significand: int, exponent: int) -> None:
    x = torch.tensor([math.ldexp(significand, exponent)], dtype=torch.float32)
    assert torch.equal(hi_lo(x), x)


def test_hi_lo_of_what_is_no_number() -> None:
    wild = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0])
    assert torch.equal(hi_lo(wild), wild) or torch.equal(hi_lo(wild).isnan(), wild.isnan())
    assert hi_lo(wild)[:2].tolist() == [math.inf, -math.inf]
    assert hi_lo(wild)[2].isnan()
    assert hi_lo(wild)[3] == 0


# --- splits ----------------------------------------------------------------------------------------------------------


@given(past_and_splits)
def test_splits_cover_the_past_once(past_splits: tuple[int, int]) -> None:
    past, splits = past_splits
    rows = [row for split in range(splits) for row in range(*split_rows(past, split, splits))]
    assert rows == list(range(past))


@given(past_and_splits)
def test_active_splits_are_those_with_rows(past_splits: tuple[int, int]) -> None:
    past, splits = past_splits
    sizes = [high - low for low, high in (split_rows(past, split, splits) for split in range(splits))]
    active = active_splits(past, splits)
    assert 1 <= active <= splits
    assert all(size > 0 for size in sizes[:active]) or past == 0
    assert not any(sizes[active:])
    assert max(sizes) <= ROWS_PER_SPLIT or active == splits
    assert max(sizes) - min(sizes[:active]) < active or active == 1


@pytest.mark.parametrize(("past", "active"), [(0, 1), (1, 1), (63, 1), (64, 1), (65, 2), (128, 2), (129, 3), (9999, 4)])
def test_a_split_for_each_64_rows(past: int, active: int) -> None:
    assert active_splits(past, 4) == active


# --- merging ---------------------------------------------------------------------------------------------------------


def partials(scores: torch.Tensor, values: torch.Tensor, cuts: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """One head and row: x [S, 1, D] and stats [S, 1, 1, 2] of the runs between ``cuts``."""
    x, stats = [], []
    for low, high in pairwise(cuts):
        if low == high:
            x.append(torch.zeros(values.shape[1]))
            stats.append(torch.tensor([-torch.inf, 0.0]))
            continue
        top = scores[low:high].max()
        weights = (scores[low:high] - top).exp()
        x.append(weights @ values[low:high])
        stats.append(torch.stack((top, weights.sum())))
    return torch.stack(x)[:, None], torch.stack(stats)[:, None, None]


@pytest.mark.parametrize("cuts", [[0, 12], [0, 5, 12], [0, 1, 2, 12], [0, 12, 12, 12], [0, 4, 4, 12]])
@pytest.mark.parametrize("spread", [0.0, 1.0, 300.0, 1e6])
def test_merged_splits_are_one_softmax(cuts: list[int], spread: float) -> None:
    random = torch.Generator().manual_seed(3)
    scores, values = torch.randn(12, generator=random) * spread, torch.randn(12, 8, generator=random)
    merged = merge_splits(*partials(scores, values, cuts), heads=1)
    torch.testing.assert_close(merged, (scores.softmax(0) @ values)[None], rtol=1e-5, atol=1e-6)


def test_heads_are_merged_each_by_its_own_weight() -> None:
    x = torch.tensor([[[1.0, 1.0, 5.0, 5.0]], [[2.0, 2.0, 7.0, 7.0]]])
    low, high = -1e4, 1e4
    stats = torch.tensor([[[[high, 1.0], [low, 1.0]]], [[[low, 1.0], [high, 1.0]]]])
    assert merge_splits(x, stats, heads=2).tolist() == [[1.0, 1.0, 7.0, 7.0]]


# --- rotation --------------------------------------------------------------------------------------------------------


def test_rotation_pairs_the_halves() -> None:
    quarter = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])  # cos then sin: element 0 turns by 90 degrees, element 1 by none
    x = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])
    assert rotate(x, quarter).tolist() == [[[-3.0, 2.0, 1.0, 4.0]]]
