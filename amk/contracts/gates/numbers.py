"""Numbers that show what precision they are added up in: float32 adds them exactly, narrower types do not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import torch
from torch import Tensor

HALF: Final = 1 << 11
"""float16 holds every integer up to this, and not the odd ones beyond; TF32 rounds to the same number of bits."""

BRAIN: Final = 1 << 8
"""The same for bfloat16."""

EXACT: Final = 1 << 24
"""The same for float32."""

FEWEST: Final = 4
"""Elements that are filled at least: of fewer no total is large."""


Fill: TypeAlias = Callable[[tuple[int, ...], torch.Generator, int], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """How a case fills the inputs.

    Attributes
    ----------
    fill
        (shape, source of random numbers, room) to float64 values of the input that the case is about: their sum, also
        with each element taken up to ``EXACT / room`` times, is exact in float32.
    others
        The same for the other floating inputs, and for parameters and buffers.
    """

    name: str
    fill: Fill
    others: Fill


def _ones(shape: tuple[int, ...], generator: torch.Generator, room: int) -> Tensor:
    return torch.ones(shape, dtype=torch.float64)


def _integers(low: int, high: int) -> Fill:
    """Uniform on ``low`` to ``high``, both included."""
    return lambda shape, generator, room: torch.randint(low, high + 1, shape, generator=generator).double()


def _mirrored(limit: int, dim: int) -> Fill:
    """Integers between ``limit / 2`` and ``limit`` in the first half of a dimension, minus those in the second.

    With a few ones on top a sum along it is small, and so are its roundings to a narrow type; the totals on the way
    are far beyond what that type holds.
    """

    def fill(shape: tuple[int, ...], generator: torch.Generator, room: int) -> Tensor:
        values = torch.randint(0, 2, shape, generator=generator).double()
        if dim >= len(shape):
            return values
        half = shape[dim] // 2
        first = values.narrow(dim, 0, half)
        big = torch.randint(limit // 2, limit - 1, first.shape, generator=generator).double()
        big = big * _dense_part(tuple(first.shape), dim, room // limit)
        values.narrow(dim, half, half).sub_(big)
        first.add_(big)
        return values

    return fill


def _beside_one(shape: tuple[int, ...], generator: torch.Generator, room: int) -> Tensor:
    """1 + 2^-12 or 1 - 2^-12: twelve bits behind the point, of which TF32 and float16 keep ten. Some are zero."""
    values = 1 + (2.0 * torch.randint(0, 2, shape, generator=generator).double() - 1) * 2.0**-12
    return values * _dense_part(shape, len(shape) - 1, room >> 13)


def _dense_part(shape: tuple[int, ...], dim: int, most: int) -> Tensor:
    """Ones in ``most`` places at most, but a few, in whole lines along ``dim`` if none is longer; else zeros."""
    most = max(most, FEWEST)
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
