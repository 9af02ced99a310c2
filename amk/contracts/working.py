"""The size that gates work at: small enough to ask for often, and still one that kernel and reference accept.

A cut is (tensor, dimension, size), tensors counted through all arguments: keep the first so many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import torch
from torch import Tensor

from amk.contracts.outcomes import Value
from amk.contracts.trial import tensors_of

ELEMENTS_MAX: Final = 1 << 18
"""Of all inputs together."""

SIZE_MIN: Final = 8
TRIALS_MAX: Final = 40
"""Sizes that are tried, each by a call of either side."""

Cuts: TypeAlias = tuple[tuple[int, int, int], ...]
Place: TypeAlias = tuple[int, int]
Accepts: TypeAlias = Callable[[tuple[Value, ...]], bool]


class _SpentError(Exception):
    """All tries are used up."""


def working_cuts(made: tuple[Value, ...], accepts: Accepts) -> Cuts:
    """How to cut ``made`` inputs.

    Dimensions of equal size are tied: they are cut together, unless that is refused. A dimension that only happens to
    have a size which another may not leave (a batch as large as the features) is cut to a size of its own.

    Parameters
    ----------
    accepts
        Whether both sides take inputs.
    """
    search = _Search(made, accepts)
    try:
        search.shrink()
        search.untie()
    except _SpentError:
        pass
    return search.cuts


class _Search:
    def __init__(self, made: tuple[Value, ...], accepts: Accepts) -> None:
        self._made = made
        self._accepts = accepts
        self._shapes = [tuple(tensor.shape) for tensor in tensors_of(made)]
        self._sizes: dict[Place, int] = {}
        self._left = TRIALS_MAX

    @property
    def cuts(self) -> Cuts:
        return tuple((tensor, dim, size) for (tensor, dim), size in sorted(self._sizes.items()))

    def shrink(self) -> None:
        """Halve sizes, the largest first, until the inputs are small enough or no size gives way."""
        fixed: set[frozenset[Place]] = set()
        while self._elements(self._sizes) > ELEMENTS_MAX:
            groups = [group for group in self._groups() if group not in fixed and self._now(group) > SIZE_MIN]
            if not groups:
                return
            group = max(groups, key=self._now)
            if not any(self._try(part, new) for part in _parts(group) for new in self._smaller(part)):
                fixed.add(group)

    def untie(self) -> None:
        """Give dimensions sizes of their own where their tie is by chance."""
        for group in self._groups():
            size = self._now(group)
            if len(group) < 2 or size < 3 or self._try(group, size - 1, keep=False):
                continue
            for part in list(_parts(group))[1:]:
                taken = set(self._current().values())
                new = next((new for new in (size // 2, size - 1) if new > 1 and new not in taken), None)
                if new is not None and self._try(part, new):
                    break

    def _smaller(self, part: frozenset[Place]) -> Iterator[int]:
        """Sizes to try, the smallest that is of use first: powers of two below, so that what divided still does."""
        size, total = self._now(part), self._elements(self._sizes)
        wanted = max(SIZE_MIN, size * ELEMENTS_MAX // total)
        shift = max(1, math.ceil(math.log2(size / wanted)))
        for by in (shift, 1) if shift > 1 else (1,):
            yield max(1, size >> by)

    def _try(self, part: frozenset[Place], new: int, *, keep: bool = True) -> bool:
        if self._left <= 0:
            raise _SpentError
        self._left -= 1
        sizes = {**self._sizes, **dict.fromkeys(part, new)}
        accepted = self._accepts(cut(self._made, tuple((*place, size) for place, size in sizes.items())))
        if accepted and keep:
            self._sizes = sizes
        return accepted

    def _current(self) -> dict[Place, int]:
        whole = {(at, dim): size for at, shape in enumerate(self._shapes) for dim, size in enumerate(shape)}
        return whole | self._sizes

    def _groups(self) -> list[frozenset[Place]]:
        """Dimensions of equal size."""
        groups: dict[int, set[Place]] = {}
        for place, size in self._current().items():
            groups.setdefault(size, set()).add(place)
        return [frozenset(groups[size]) for size in sorted(groups, reverse=True)]

    def _now(self, part: frozenset[Place]) -> int:
        place = next(iter(part))
        return self._sizes.get(place, self._shapes[place[0]][place[1]])

    def _elements(self, sizes: Mapping[Place, int]) -> int:
        return sum(
            math.prod(sizes.get((at, dim), size) for dim, size in enumerate(shape))
            for at, shape in enumerate(self._shapes)
        )


def _parts(group: frozenset[Place]) -> Iterator[frozenset[Place]]:
    """A group; then those of its dimensions that have one place in their tensors; then each alone."""
    yield group
    dims = sorted({dim for _, dim in group})
    if len(dims) > 1:
        yield from (frozenset(place for place in group if place[1] == dim) for dim in dims)
    if len(group) > len(dims):
        yield from (frozenset({place}) for place in sorted(group))


def cut(made: tuple[Value, ...], cuts: Sequence[tuple[int, int, int]]) -> tuple[Value, ...]:
    """What is left of ``made`` inputs; tensors that are cut become contiguous."""
    count = 0

    def visit(value: Value) -> Value:
        nonlocal count
        if isinstance(value, Tensor):
            at, count = count, count + 1
            return _cut(value, [(dim, size) for tensor, dim, size in cuts if tensor == at])
        if isinstance(value, list):
            return [visit(item) for item in value]
        if isinstance(value, tuple):
            return tuple(visit(item) for item in value)
        if isinstance(value, dict):
            return {key: visit(item) for key, item in value.items()}
        return value

    return tuple(visit(value) for value in made)


def _cut(tensor: Tensor, cuts: Sequence[tuple[int, int]]) -> Tensor:
    if not cuts:
        return tensor
    plain = tensor.detach()
    for dim, size in cuts:
        plain = plain.narrow(dim, 0, min(size, plain.shape[dim]))
    return plain.clone(memory_format=torch.contiguous_format).requires_grad_(tensor.requires_grad)
