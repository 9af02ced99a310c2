"""Where a gradient has two right values: at the kink of a ReLU, at a tie of two maxima."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from amk.contracts.gates.cases import Inputs, mapped
from amk.contracts.gates.kappa import KAPPA, unit_roundoff
from amk.contracts.outcomes import Answer, Ask
from amk.contracts.trial import Trial

STEP: Final = 2.0**-30
"""Of a move in float64, relative to the values: a smooth gradient changes by less than a rounding to float32."""

ROUNDINGS: Final = 4
"""Of a move in a narrow type: what a chain of a few operations is off by before it comes to a kink."""

DIRECTIONS: Final = 3
"""Random ones, each to both sides: one of them may miss the kink."""


def roundings_away(
    trial: Trial, inputs: Inputs, along: tuple[Tensor | None, ...], generator: torch.Generator
) -> list[Answer]:
    """The same a few roundings of a narrow type away, in several directions; empty of other types.

    What such a kernel keeps in its type on the way, before a ReLU, is off by as much, and may lie beyond the kink.
    """
    if trial.dtype.itemsize >= torch.float32.itemsize:
        return []
    step = ROUNDINGS * unit_roundoff(trial.dtype)
    found = [nearby(trial, inputs, along, generator, step) for _ in range(DIRECTIONS)]
    return [answer for answers in found for answer in answers or ()]


def nearby(
    trial: Trial,
    inputs: Inputs,
    along: tuple[Tensor | None, ...],
    generator: torch.Generator,
    step: float = STEP,
) -> list[Answer] | None:
    """The reference's gradients in float64 a small random step to either side; None where it has none.

    Parameters
    ----------
    inputs
        Those that ask for a gradient.
    along
        Cotangents of the outputs.
    step
        Relative to the values.
    """
    wide = mapped(inputs, lambda place, value: value.double() if value.is_floating_point() else value)
    state = {name: value.double() for name, value in trial.weights.items() if value.is_floating_point()}
    steps = {name: _step(value, generator, step) for name, value in state.items()}
    moves: dict[int, Tensor] = {}

    def moved(place: int, value: Tensor, sign: int) -> Tensor:
        if not value.is_floating_point():
            return value
        if place not in moves:
            moves[place] = _step(value, generator, step)
        return value + sign * moves[place]

    answers = []
    for sign in (1, -1):
        ask = Ask(
            inputs=mapped(wide, lambda place, value, sign=sign: moved(place, value, sign)),  # type: ignore[misc]
            dtype=torch.float64,
            cotangents=along,
            state={name: value + sign * steps[name] for name, value in state.items()},
        )
        answer = trial.reference.ask(ask)
        if not isinstance(answer, Answer):
            return None
        answers.append(answer)
    return answers


def steady(exact: Tensor, beside: list[Tensor], dtype: torch.dtype) -> Tensor:
    """Where a gradient is the same on both sides: it moves by less than half of what the error-ratio rule grants."""
    finite = exact.nan_to_num(0.0, 0.0, 0.0).abs()
    granted = KAPPA / 2 * unit_roundoff(dtype) * (float(finite.max()) if exact.numel() else 0.0)
    kept = torch.ones(exact.shape, dtype=torch.bool)
    for other in beside:
        # Where both are infinite or NaN their difference is NaN, and the element stays.
        kept &= ~((other - exact).abs() > granted)
    return kept


def _step(value: Tensor, generator: torch.Generator, step: float) -> Tensor:
    """Random normal numbers, ``step`` as large as the values, or as one where these are all zero."""
    scale = float(value.square().mean().sqrt()) if value.numel() else 0.0
    return torch.randn(value.shape, generator=generator, dtype=torch.float64) * (step * (scale or 1.0))
