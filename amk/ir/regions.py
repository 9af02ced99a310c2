"""Half-open boxes in buffers, with bounds linear in named runtime symbols.

A bound is an integer or ``base + sum(coefficient * symbol)``. The symbols of this version are ``pos``, the position of
a step's first row, and ``tokens``, the rows of a step: a step appends KV rows ``[pos, pos + tokens)`` and reads rows
``[0, pos)``. Two accesses at different steps use different values of ``pos`` and the same ``tokens``.
"""

from __future__ import annotations

from collections.abc import Mapping

from amk.ir.record import Record

POS = "pos"
TOKENS = "tokens"


class Linear(Record):
    """``base + sum(coefficient * symbol)``; terms sorted by symbol, coefficients not zero."""

    terms: tuple[tuple[str, int], ...]
    base: int = 0


Bound = int | Linear
Interval = tuple[Bound, Bound]
Box = tuple[Interval, ...]
Env = Mapping[str, int]


class Region(Record):
    """The box ``[low, high)`` on every axis of a buffer."""

    buffer: str
    box: Box


def linear(base: int = 0, **coefficients: int) -> Bound:
    """A bound in canonical form: a plain int when no symbol remains."""
    terms = tuple(sorted((symbol, k) for symbol, k in coefficients.items() if k))
    return Linear(terms=terms, base=base) if terms else base


def value(bound: Bound, env: Env) -> int:
    """The bound's value; KeyError for a symbol that ``env`` does not name."""
    if isinstance(bound, int):
        return bound
    return bound.base + sum(k * env[symbol] for symbol, k in bound.terms)


def coefficient(bound: Bound, symbol: str) -> int:
    """How fast the bound grows with ``symbol``."""
    return 0 if isinstance(bound, int) else dict(bound.terms).get(symbol, 0)


def symbols(box: Box) -> frozenset[str]:
    """Every symbol that occurs in the box."""
    bounds = (bound for interval in box for bound in interval if isinstance(bound, Linear))
    return frozenset(symbol for bound in bounds for symbol, _ in bound.terms)


def concrete(box: Box, env: Env) -> tuple[tuple[int, int], ...]:
    """The box with every bound evaluated; an empty interval has ``high <= low``."""
    return tuple((value(low, env), value(high, env)) for low, high in box)


def volume(box: Box, env: Env) -> int:
    """Number of elements; 0 when any interval is empty."""
    total = 1
    for low, high in concrete(box, env):
        total *= max(0, high - low)
    return total


def show(bound: Bound) -> str:
    """The bound as a person writes it: ``pos+tokens-1``."""
    if isinstance(bound, int):
        return str(bound)
    parts = [f"{k:+d}*{symbol}" if abs(k) != 1 else f"{'-' if k < 0 else '+'}{symbol}" for symbol, k in bound.terms]
    text = "".join(parts) + (f"{bound.base:+d}" if bound.base else "")
    return text.removeprefix("+")


def show_region(region: Region) -> str:
    """The region as a person writes it: ``hidden[0:tokens, 0:64]``."""
    inside = ", ".join(f"{show(low)}:{show(high)}" for low, high in region.box)
    return f"{region.buffer}[{inside}]"
