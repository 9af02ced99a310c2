"""Inputs of other sizes, made of those that there are."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from amk.contracts.outcomes import Value


def resized_inputs(
    inputs: tuple[Value, ...], sizes: Mapping[int, int], generator: torch.Generator, *, numbers_too: bool
) -> tuple[Value, ...] | None:
    """Contiguous inputs in which every dimension of size ``old`` has size ``new``.

    What is there stays in its place. Beyond it floating tensors hold elements of their own drawn at random, others
    repeat themselves. Non-negative integers below a size that shrinks may be indices into it, and stay below it.

    Parameters
    ----------
    numbers_too
        A number among the arguments that equals ``old`` becomes ``new``.

    Returns
    -------
    tuple or None
        None where ``numbers_too`` makes no difference.
    """
    changed = False

    def visit(value: Value) -> Value:
        nonlocal changed
        if isinstance(value, Tensor):
            return _resized(value, sizes, generator)
        if isinstance(value, list):
            return [visit(item) for item in value]
        if isinstance(value, tuple):
            return tuple(visit(item) for item in value)
        if isinstance(value, dict):
            return {key: visit(item) for key, item in value.items()}
        if numbers_too and type(value) is int and value in sizes:
            changed = True
            return sizes[value]
        return value

    made = tuple(visit(value) for value in inputs)
    return made if changed or not numbers_too else None


def _resized(tensor: Tensor, sizes: Mapping[int, int], generator: torch.Generator) -> Tensor:
    plain = tensor.detach()
    made = plain
    fresh = torch.zeros((1,) * plain.dim(), dtype=torch.bool)
    for dim, old in enumerate(plain.shape):
        new = sizes.get(old, old)
        if new != old:
            places = torch.arange(new)
            made = made.index_select(dim, places % old) if old else made.new_zeros(_with(made.shape, dim, new))
            fresh = fresh | (places >= old).reshape(_with((1,) * plain.dim(), dim, new))
    if plain.is_floating_point() and plain.numel():
        drawn = torch.randint(plain.numel(), made.shape, generator=generator)
        made = torch.where(fresh, plain.reshape(-1)[drawn], made)
    elif made.numel() and not plain.is_complex() and plain.dtype is not torch.bool:
        made = _within(made, sizes)
    made = made.clone(memory_format=torch.contiguous_format)
    return made.requires_grad_(tensor.requires_grad)


def _within(made: Tensor, sizes: Mapping[int, int]) -> Tensor:
    """Integers that may be indices into what shrinks, kept below it."""
    low, high = int(made.min()), int(made.max())
    for old, new in sizes.items():
        if 0 < new < old and low >= 0 and new <= high < old:
            made = made % new
    return made


def _with(shape: torch.Size | tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    return (*shape[:dim], size, *shape[dim + 1 :])
