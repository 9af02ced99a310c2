"""Whole numbers as results: an index has no size of error, and two nearly equal values may change places by a rounding.

Such an element is not settled. The reference shows which ones are: it keeps them when its inputs move by a few
roundings.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from amk.contracts.gates.cases import Inputs, mapped
from amk.contracts.gates.kappa import unit_roundoff
from amk.contracts.outcomes import Answer
from amk.contracts.trial import Trial

ROUNDINGS: Final = 8
"""By how many of them inputs move at most, each element by its own."""

DRAWS: Final = 8


def settled(trial: Trial, inputs: Inputs, candidate: Answer, exact: Answer) -> tuple[Tensor, ...]:
    """The candidate's values; of whole numbers, those that are not settled are replaced by the float64 run's."""
    if all(map(_may_stay, candidate.values, exact.values)):
        return candidate.values
    moved = [trial.expected(_moved(trial, inputs, draw)) for draw in range(DRAWS)]
    kept: list[Tensor] = []
    for place, (mine, true) in enumerate(zip(candidate.values, exact.values, strict=True)):
        if _may_stay(mine, true):
            kept.append(mine)
            continue
        steady = torch.ones(true.shape, dtype=torch.bool)
        for outcome in moved:
            if isinstance(outcome, Answer) and outcome.values[place].shape == true.shape:
                steady &= outcome.values[place] == true
        kept.append(torch.where(steady, mine, true.to(mine.dtype)))
    return tuple(kept)


def _may_stay(mine: Tensor, true: Tensor) -> bool:
    fractional = true.is_floating_point() or true.is_complex()
    return fractional or mine.shape != true.shape or torch.equal(mine.to(true.dtype), true)


def _moved(trial: Trial, inputs: Inputs, draw: int) -> Inputs:
    generator = trial.generator("roundings", draw)

    def change(place: int, value: Tensor) -> Tensor:
        if not value.is_floating_point():
            return value
        by = 2 * torch.rand(value.shape, generator=generator, dtype=torch.float64) - 1
        return (value.double() * (1 + ROUNDINGS * unit_roundoff(value.dtype) * by)).to(value.dtype)

    return mapped(inputs, change)
