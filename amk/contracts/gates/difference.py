"""Central differences: whether a kernel's gradient is the slope of what it computes."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from amk.contracts.gates.cases import Inputs, mapped
from amk.contracts.outcomes import Answer, Ask
from amk.contracts.trial import Subject, tensors_of

STEP: Final = 2.0**-17
"""Relative to the inputs. Near the cube root of float64's unit roundoff, where the error of the formula (the square of
the step) and that of rounding (the unit roundoff over the step) are alike."""


def slope_error(
    subject: Subject, inputs: Inputs, along: tuple[Tensor | None, ...], generator: torch.Generator
) -> float | None:
    """How far the slope along a random direction is from what the gradient says, as a share of their terms' magnitude.

    Parameters
    ----------
    inputs
        In float64; those that ask for a gradient are moved.
    along
        A cotangent for each output that asks for a gradient: what is differentiated is the sum of their products.

    Returns
    -------
    float or None
        None where the kernel does not compute in float64, or has no gradient there: status is another check's.
    """
    gradient = subject.ask(Ask(inputs=inputs, dtype=torch.float64, cotangents=along))
    directions = [_direction(value, generator) for value in tensors_of(inputs)]
    ahead = subject.ask(Ask(inputs=_moved(inputs, directions, STEP), dtype=torch.float64))
    behind = subject.ask(Ask(inputs=_moved(inputs, directions, -STEP), dtype=torch.float64))
    if not isinstance(gradient, Answer) or not isinstance(ahead, Answer) or not isinstance(behind, Answer):
        return None
    slopes = []
    for weight, high, low in zip(along, ahead.values, behind.values, strict=True):
        if weight is None:
            continue
        if high.dtype != torch.float64 or high.shape != weight.shape or low.shape != weight.shape:
            return None
        slopes.append((weight * (high - low)).flatten() / (2 * STEP))
    expected = []
    for direction, slope in zip(directions, gradient.input_gradients, strict=True):
        if slope is not None and direction is not None:
            if slope.shape != direction.shape:
                return None
            expected.append((slope.double() * direction).flatten())
    if not expected:
        return None
    terms = [torch.cat(slopes), torch.cat(expected)]
    magnitude = float(sum(term.abs().sum() for term in terms))
    if not magnitude:
        return 0.0
    return abs(float(terms[0].sum() - terms[1].sum())) / magnitude


def _direction(value: Tensor, generator: torch.Generator) -> Tensor | None:
    """Normal numbers as large as the values they are added to; None for what asks for no gradient."""
    if not value.requires_grad:
        return None
    drawn = torch.randn(value.shape, generator=generator, dtype=torch.float64)
    scale = float(value.detach().square().mean().sqrt()) if value.numel() else 0.0
    return drawn * (scale or 1.0)


def _moved(inputs: Inputs, directions: list[Tensor | None], step: float) -> Inputs:
    def one(place: int, value: Tensor) -> Tensor:
        direction = directions[place]
        return value if direction is None else value + step * direction

    return mapped(inputs, one)
