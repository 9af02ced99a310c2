"""What torch, the builtins and the clock are before a kernel is loaded, and what it has replaced in them since."""

from __future__ import annotations

import builtins
import operator
import time
from collections.abc import Mapping
from typing import Final

import torch

WATCHED: Final = (
    ("torch", torch),
    ("torch.Tensor", torch.Tensor),
    ("torch._C.TensorBase", torch._C.TensorBase),  # noqa: SLF001 - where most of a tensor's methods are
    ("torch.nn.functional", torch.nn.functional),
    ("torch.nn.Module", torch.nn.Module),
    ("torch.testing", torch.testing),
    ("torch.cuda", torch.cuda),
    ("torch.cuda.Event", torch.cuda.Event),
    ("builtins", builtins),
    ("time", time),
)

_missing: Final = object()
_all, _map, _is = all, map, operator.is_


class Fingerprint:
    """The callables of ``WATCHED`` at the time it was made."""

    def __init__(self) -> None:
        self._watched = [_Watched(name, holder) for name, holder in WATCHED]

    def changes(self) -> tuple[str, ...]:
        """Names of what is another object now, is gone, or is hidden by a new attribute of a subclass."""
        return tuple(sorted(change for watched in self._watched for change in watched.changes()))


class _Watched:
    def __init__(self, name: str, holder: object) -> None:
        self._name = name
        self._now: Mapping[str, object] = vars(holder)
        held = {attribute: value for attribute, value in self._now.items() if _is_behaviour(value)}
        self._names, self._values = tuple(held), tuple(held.values())
        self._get = operator.itemgetter(*self._names)
        self._inherited = _inherited(holder)

    def changes(self) -> list[str]:
        try:
            same = _all(_map(_is, self._get(self._now), self._values))
        except KeyError:
            same = False
        found: list[str] = []
        if not same:
            pairs = zip(self._names, self._values, strict=True)
            found += [
                name
                for name, value in pairs
                if (now := self._now.get(name, _missing)) is not value and not _is_the_compilers(now)
            ]
        if not self._inherited.isdisjoint(self._now):
            found += [name for name in self._inherited if name in self._now]
        return [f"{self._name}.{name}" for name in found]


def _is_the_compilers(value: object) -> bool:
    """Whether torch's compiler has put it there, which it does when it is first imported."""
    return str(getattr(value, "__module__", "")).startswith("torch._dynamo.")


def _is_behaviour(value: object) -> bool:
    """Flags and caches of a module change as it is used; its functions, classes and descriptors do not."""
    return callable(value) or isinstance(value, (property, staticmethod, classmethod)) or hasattr(value, "__get__")


def _inherited(holder: object) -> frozenset[str]:
    """Attributes that a class has from its bases alone."""
    if not isinstance(holder, type):
        return frozenset()
    own = vars(holder)
    return frozenset(name for base in holder.__mro__[1:] for name in vars(base) if name not in own)
