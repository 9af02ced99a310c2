"""Eight-bit weights: nearest values, whatever the row holds."""

from __future__ import annotations

import numpy as np
import pytest

from amk.ir.errors import NonFiniteWeightError
from amk.ir.quantize import LEVELS, dequantized, groups, quantized, rounded, scales

GROUPS = pytest.mark.parametrize("group", [0, 64, 128])


def weights(rows: int = 37, columns: int = 200) -> np.ndarray:
    return np.random.default_rng(7).standard_normal((rows, columns)).astype(np.float32)


@GROUPS
def test_no_other_integer_is_nearer(group: int) -> None:
    weight = weights()
    scale = scales(weight, group=group)
    value = quantized(weight, scale, group=group)
    assert scale.shape == (37, groups(200, group))
    assert value.dtype == np.int8
    wide = np.repeat(scale, group or 200, axis=1)[:, :200].astype(np.float64)
    assert np.abs(weight - value * wide).max(initial=0) <= wide.max() / 2 * (1 + 1e-6)
    assert (np.abs(weight - value * wide) <= wide / 2 * (1 + 1e-6)).all()
    assert np.array_equal(dequantized(value, scale, group=group), rounded(weight, group=group))


@GROUPS
def test_the_greatest_of_each_group_has_the_greatest_integer(group: int) -> None:
    value = quantized(weights(), scales(weights(), group=group), group=group)
    width = group or 200
    for begin in range(0, 200, width):
        assert (np.abs(value[:, begin : begin + width].astype(int)).max(axis=1) == LEVELS).all()


@GROUPS
def test_rows_of_zeros_and_of_one_huge_value(group: int) -> None:
    weight = weights()
    weight[3] = 0.0
    weight[4] = 1e-3
    weight[4, 7] = 3e38
    weight[5] = 1e-44  # whose scale is zero
    made = rounded(weight, group=group)
    assert not made[3].any()
    assert made[4, 7] == pytest.approx(3e38)
    assert not made[4, :7].any()
    assert np.abs(made[5]).max() <= 2e-44
    assert np.isfinite(made).all()


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@GROUPS
def test_what_is_not_finite_is_refused_by_name(group: int, wrong: float) -> None:
    weight = weights()
    weight[11, 199] = wrong
    with pytest.raises(NonFiniteWeightError, match=r"row 11 of lm_head\.weight has a weight that is NaN or infinite"):
        scales(weight, group=group, name="lm_head.weight")


def test_a_quantized_matrix_quantizes_to_itself() -> None:
    weight = weights()
    scale = scales(weight)
    once = rounded(weight)
    assert np.array_equal(quantized(once, scales(once)), quantized(weight, scale))
