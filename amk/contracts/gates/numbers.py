"""Numbers that show what precision they are added up in: float32 adds them exactly, narrower types do not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

HALF: Final = 1 << 11
"""float16 holds every integer up to this, and not the odd ones beyond; TF32 rounds to the same number of bits."""

BRAIN: Final = 1 << 8
"""The same for bfloat16."""

EXACT: Final = 1 << 24
"""The same for float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """How a case fills the inputs.

    Attributes
    ----------
    fill
        (shape, source of random numbers) to float64 values of the input that the case is about.
    others
        The same for the other floating inputs, and for parameters and buffers.
    """

    name: str
    fill: Callable[[tuple[int, ...], torch.Generator], Tensor]
    others: Callable[[tuple[int, ...], torch.Generator], Tensor]


def _ones(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.ones(shape, dtype=torch.float64)


def _integers(low: int, high: int) -> Callable[[tuple[int, ...], torch.Generator], Tensor]:
    """Uniform on ``low`` to ``high``, both included."""
    return lambda shape, generator: torch.randint(low, high + 1, shape, generator=generator).double()


def _mirrored(limit: int, dim: int) -> Callable[[tuple[int, ...], torch.Generator], Tensor]:
    """Integers between ``limit / 2`` and ``limit`` in the first half of a dimension, minus those in the second.

    With a few ones on top a sum along it is small, and so are its roundings to a narrow type; the totals on the way
    are far beyond what that type holds.
    """

    def fill(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        values = torch.randint(0, 2, shape, generator=generator).double()
        if dim >= len(shape):
            return values
        half = shape[dim] // 2
        first = values.narrow(dim, 0, half)
        big = torch.randint(limit // 2, limit - 1, first.shape, generator=generator).double()
        big = big * _dense_part(tuple(first.shape), dim, EXACT // limit)
        values.narrow(dim, half, half).sub_(big)
        first.add_(big)
        return values

    return fill


def _beside_one(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """1 + 2^-12 or 1 - 2^-12: twelve bits behind the point, of which TF32 and float16 keep ten. Some are zero."""
    values = 1 + (2.0 * torch.randint(0, 2, shape, generator=generator).double() - 1) * 2.0**-12
    return values * _dense_part(shape, len(shape) - 1, EXACT >> 13)


def _dense_part(shape: tuple[int, ...], dim: int, most: int) -> Tensor:
    """Ones in ``most`` places at most, in whole lines along ``dim`` where these are not longer; zeros in the others.

    So the sum of all elements is still exact in float32, whatever a kernel adds up.
    """
    if not shape:
        return torch.ones((), dtype=torch.float64)
    before, length, behind = math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])
    lines = (torch.arange(before * behind) < max(1, most // max(length, 1))).double()
    within = (torch.arange(length) < most).double()
    return lines.view(*shape[:dim], 1, *shape[dim + 1 :]) * within.view(length, *[1] * (len(shape) - dim - 1))


SMALL: Final = Numbers(name="small integers everywhere", fill=_integers(-4, 4), others=_integers(-4, 4))


def numbers_for(dtype: torch.dtype, dims: Iterable[int]) -> Iterator[Numbers]:
    """Fillings whose values ``dtype`` holds exactly; ``dims`` are those along which something may be added up."""
    for limit in (HALF, BRAIN):
        if torch.finfo(dtype).eps <= 2 / limit:
            for dim in dims:
                name = f"integers up to {limit} that cancel along dimension {dim}"
                yield Numbers(name=name, fill=_mirrored(limit, dim), others=_ones)
    if torch.finfo(dtype).eps <= 2.0**-23:
        yield SMALL
        yield Numbers(name="1 +- 2^-12 and ones", fill=_beside_one, others=_ones)
        yield Numbers(name="ones, and 1 +- 2^-12 in all else", fill=_ones, others=_beside_one)
