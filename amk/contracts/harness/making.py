"""Inputs, made by the reference's own maker in its process, cut to a size on the way out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from amk.contracts.harness.loading import as_arguments, seed_all
from amk.contracts.outcomes import Value
from amk.contracts.working import cut


def made(
    maker: Callable[..., object], seed: int, dtype: torch.dtype | None, cuts: Sequence[tuple[int, int, int]]
) -> tuple[Value, ...]:
    """The arguments that ``maker`` makes under a seed.

    Parameters
    ----------
    dtype
        Of floating tensors; None leaves them.
    cuts
        As of ``amk.contracts.working``.
    """
    seed_all(seed)
    arguments = as_arguments(maker(seed) if takes_seed(maker) else maker())
    return tuple(_cast(value, dtype) for value in cut(arguments, cuts))


def takes_seed(maker: Callable[..., object]) -> bool:
    """Whether a maker wants to be told the seed: it has a parameter of that name, or one that it cannot do without."""
    try:
        parameters = list(inspect.signature(maker).parameters.values())
    except (TypeError, ValueError):
        return False
    positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return bool(positional) and (positional[0].name == "seed" or positional[0].default is inspect.Parameter.empty)


def _cast(value: Value, dtype: torch.dtype | None) -> Value:
    if isinstance(value, Tensor):
        return value.to(dtype) if dtype is not None and value.is_floating_point() else value
    if isinstance(value, list):
        return [_cast(item, dtype) for item in value]
    if isinstance(value, tuple):
        return tuple(_cast(item, dtype) for item in value)
    if isinstance(value, dict):
        return {key: _cast(item, dtype) for key, item in value.items()}
    return value
