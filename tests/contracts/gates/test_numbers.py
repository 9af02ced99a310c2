"""The numbers of G06: exact in the type they are for, and in float32 sums, and not in narrow sums."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from amk.contracts.gates.numbers import EXACT, numbers_for

SHAPE = (12, 64)


def added_up(values: Tensor, dtype: torch.dtype) -> Tensor:
    total = torch.zeros(values.shape[0], dtype=dtype)
    for column in values.T:
        total = total + column.to(dtype)
    return total


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_they_are_what_they_are_for(dtype: torch.dtype) -> None:
    fillings = list(numbers_for(dtype, [1]))
    assert fillings
    for numbers in fillings:
        for fill in (numbers.fill, numbers.others):
            values = fill(SHAPE, torch.Generator().manual_seed(1), EXACT)
            assert values.shape == SHAPE
            assert torch.equal(values.to(dtype).double(), values)
            assert torch.equal(added_up(values, torch.float32).double(), values.sum(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_each_narrow_total_is_wrong_on_one_of_them(dtype: torch.dtype) -> None:
    for narrow in {torch.float16, torch.bfloat16} - ({torch.float16} if dtype == torch.bfloat16 else set()):
        wrong = []
        for numbers in numbers_for(dtype, [1]):
            values = numbers.fill(SHAPE, torch.Generator().manual_seed(1), EXACT)
            wrong.append(not torch.equal(added_up(values, narrow).double(), values.sum(1)))
        assert any(wrong), narrow


@pytest.mark.parametrize("shape", [(200, 300), (3, 40, 256), (70000,)])
def test_the_sum_of_all_is_exact_however_many_there_are(shape: tuple[int, ...]) -> None:
    for numbers in numbers_for(torch.float32, range(len(shape))):
        for fill in (numbers.fill, numbers.others):
            values = fill(shape, torch.Generator().manual_seed(1), EXACT).reshape(-1)
            assert torch.equal(values.float().cumsum(0).double(), values.cumsum(0))


def test_what_cancels_is_small_at_the_end() -> None:
    """A result of eight bits has nothing to round, however large the totals were on the way."""
    for numbers in numbers_for(torch.bfloat16, [1]):
        values = numbers.fill(SHAPE, torch.Generator().manual_seed(1), EXACT)
        assert values.sum(1).abs().max() <= 64
        assert values.cumsum(1).abs().max() > 2048


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (0, 4)])
def test_every_shape_can_be_filled(shape: tuple[int, ...]) -> None:
    for numbers in numbers_for(torch.float32, range(2)):
        assert numbers.fill(shape, torch.Generator(), EXACT).shape == shape
