"""Boxes of one buffer in numbers: exact overlap at every distance, and the grid of cells that write boxes cut.

A bound is ``base + pos * p + tokens * m``. m is fixed in a launch and ranges over a few values, which are tried one by
one; p is the position of the earlier of two steps and is solved for: two boxes delta steps apart overlap iff a
conjunction of inequalities linear in p has an integer solution in the reachable range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from amk.ir.regions import POS, TOKENS, Bound, Box, Linear, coefficient
from amk.validator.program import Ints

BASE: Final = 0
BY_POS: Final = 1
BY_TOKENS: Final = 2

# Pairs solved at once, so that memory does not grow with their number.
CHUNK: Final = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """Reachable symbols: pos0 + S*m <= max_context, S <= steps_max, pos0 >= pos_low.

    ``tokens`` lists the m with which at least one step fits.
    """

    pos_low: int
    max_context: int
    steps_max: int
    tokens: tuple[int, ...]

    def last_pos(self, m: int, delta: int) -> int:
        """Largest position of a step that has another ``delta`` steps after it; may be below ``pos_low``."""
        return self.max_context - (delta + 1) * m

    def reaches(self, m: int, delta: int) -> bool:
        """Whether two steps ``delta`` apart occur in a launch of ``m`` rows a step."""
        return delta < self.steps_max and self.last_pos(m, delta) >= self.pos_low

    def corners(self) -> Iterator[tuple[int, int]]:
        """Values of (p, m) among which every linear function of them is extreme."""
        for m in (self.tokens[0], self.tokens[-1]):
            yield self.pos_low, m
            yield self.last_pos(m, 0), m


def domain(*, pos_low: int, max_context: int, steps_max: int, tokens: tuple[int, int]) -> Domain:
    """The domain of a launch; ``tokens`` is the inclusive range of m."""
    low, high = tokens
    fitting = tuple(m for m in range(low, high + 1) if pos_low + m <= max_context)
    return Domain(pos_low=pos_low, max_context=max_context, steps_max=steps_max, tokens=fitting)


def _row(bound: Bound) -> tuple[int, int, int]:
    if isinstance(bound, Linear):
        return bound.base, coefficient(bound, POS), coefficient(bound, TOKENS)
    return bound, 0, 0


class BoxTable:
    """Distinct boxes of one buffer; ``low`` and ``high`` are [K, rank, (base, pos, tokens)]."""

    def __init__(self, boxes: Iterable[Box], rank: int) -> None:
        self.boxes = list(boxes)
        rows = [[(_row(low), _row(high)) for low, high in box] for box in self.boxes]
        packed = np.array(rows, np.int64).reshape(len(self.boxes), rank, 2, 3)
        self.low: Ints = packed[:, :, 0]
        self.high: Ints = packed[:, :, 1]
        self.rank = rank
        self.moves = bool(packed[..., BY_POS].any())
        self.scales = bool(packed[..., BY_TOKENS].any())

    def at(self, p: int, m: int) -> tuple[Ints, Ints]:
        """Bounds [K, rank] of every box for these values of the symbols."""
        weights = np.array([1, p, m], np.int64)
        return self.low @ weights, self.high @ weights

    def hull(self, reach: Domain) -> tuple[Ints, Ints]:
        """Bounds [K, rank] of all that a box can ever touch."""
        corners = [self.at(p, m) for p, m in reach.corners()]
        return np.minimum.reduce([low for low, _ in corners]), np.maximum.reduce([high for _, high in corners])


class TooManyPiecesError(Exception):
    """Accesses cut each other into more pieces than are worth looking at; nothing is claimed."""


# A large model on a large chip has some ten thousand at once. What is far beyond costs memory, and nobody means it.
PIECES_MAX: Final = 1 << 22


def few(what: str, count: float) -> None:
    """Raise TooManyPiecesError if there are too many of them to be held in memory."""
    if count > PIECES_MAX:
        raise TooManyPiecesError(f"there are {count:.0f} {what}, and {PIECES_MAX} are looked at")


def spread(starts: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Expand ranges: for each range i, its number repeated and ``starts[i] .. starts[i] + counts[i] - 1``."""
    which = np.repeat(np.arange(len(counts)), counts)
    offsets = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    return which, starts[which] + offsets


def _meeting(low: Ints, high: Ints, a: Ints, b: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Ranges of the pairs (i in a, j in b) whose intervals meet, by where the later of the two begins."""
    by_b, by_a = np.argsort(low[b], kind="stable"), np.argsort(low[a], kind="stable")
    low_b, low_a = low[b][by_b], low[a][by_a]
    first = np.searchsorted(low_b, low[a], "left")
    inside_a = np.maximum(np.searchsorted(low_b, high[a], "left") - first, 0)  # b begins at or after a, before its end
    second = np.searchsorted(low_a, low[b], "right")
    inside_b = np.maximum(np.searchsorted(low_a, high[b], "left") - second, 0)  # a begins after b, before its end
    return first, inside_a, second, inside_b


def may_meet(table: BoxTable, a: Ints, b: Ints, reach: Domain) -> tuple[Ints, Ints]:
    """Pairs (i in a, j in b) of boxes whose hulls overlap; found by sorting, so at the cost of the pairs found."""
    lows, highs = table.hull(reach)
    plans = [_meeting(lows[:, axis], highs[:, axis], a, b) for axis in range(table.rank)]
    few("pairs of regions that may meet", min(int(plan[1].sum() + plan[3].sum()) for plan in plans))
    first, inside_a, second, inside_b = min(plans, key=lambda plan: int(plan[1].sum() + plan[3].sum()))
    axis = next(i for i, plan in enumerate(plans) if plan[0] is first)
    by_b = np.argsort(lows[b, axis], kind="stable")
    by_a = np.argsort(lows[a, axis], kind="stable")
    one_a, one_b = spread(first, inside_a)
    two_b, two_a = spread(second, inside_b)
    i = np.concatenate([a[one_a], a[by_a[two_a]]])
    j = np.concatenate([b[by_b[one_b]], b[two_b]])
    keep = ((lows[i] < highs[j]) & (lows[j] < highs[i])).all(axis=1)
    return i[keep], j[keep]


def overlapping(table: BoxTable, a: Ints, b: Ints, delta: int, reach: Domain) -> tuple[Ints, Ints]:
    """Pairs (i in a, j in b) such that box i at some step meets box j ``delta`` steps later, in some launch."""
    i, j = may_meet(table, a, b, reach)
    tokens = [m for m in reach.tokens if reach.reaches(m, delta)]
    if not (table.moves or table.scales):
        tokens = tokens[:1]
    found = np.zeros(len(i), bool)
    for some in np.array_split(np.arange(len(i)), len(i) // CHUNK + 1):
        low, high = _solutions(table, np.stack([i[some], j[some]]), delta, np.array(tokens, np.int64), reach)
        found[some] = (low <= high).any(axis=0)
    return i[found], j[found]


def meeting_point(table: BoxTable, i: int, j: int, delta: int, reach: Domain) -> tuple[int, int] | None:
    """Values (p, m) for which box i meets box j ``delta`` steps later; None if there are none."""
    tokens = [m for m in reach.tokens if reach.reaches(m, delta)]
    low, high = _solutions(table, np.array([[i], [j]]), delta, np.array(tokens, np.int64), reach)
    for m, first, last in zip(tokens, low[:, 0].tolist(), high[:, 0].tolist(), strict=True):
        if first <= last:
            return first, m
    return None


def _solutions(table: BoxTable, pairs: Ints, delta: int, tokens: Ints, reach: Domain) -> tuple[Ints, Ints]:
    """Per m and pair, the range of p for which the boxes meet on every axis; empty ranges are upside down.

    ``pairs`` is [2, P], the later box second; the result is [M, P].
    """
    m = tokens[:, None]
    first = np.full((len(tokens), pairs.shape[1]), reach.pos_low, np.int64)
    last = first * 0 + (reach.max_context - (delta + 1) * m)

    def bound(rows: Ints, shift: Ints) -> tuple[Ints, Ints]:
        slope = rows[..., BY_POS]
        return rows[..., BASE] + slope * shift + rows[..., BY_TOKENS] * m, slope

    for axis in range(table.rank):
        low_i, low_j = (bound(table.low[box, axis], step * m) for box, step in zip(pairs, (0, delta), strict=True))
        high_i, high_j = (bound(table.high[box, axis], step * m) for box, step in zip(pairs, (0, delta), strict=True))
        for small, large in ((low_i, high_j), (low_j, high_i), (low_i, high_i), (low_j, high_j)):
            first, last = _narrow(first, last, large[0] - small[0], large[1] - small[1])
    return first, last


def _narrow(first: Ints, last: Ints, constant: Ints, slope: Ints) -> tuple[Ints, Ints]:
    """The part of [first, last] where constant + slope * p > 0."""
    if not slope.any():
        return first, np.where(constant > 0, last, first - 1)
    safe = np.where(slope == 0, 1, np.abs(slope))
    first = np.where(slope > 0, np.maximum(first, -constant // safe + 1), first)
    last = np.where(slope < 0, np.minimum(last, (constant - 1) // safe), last)
    return first, np.where((slope == 0) & (constant <= 0), first - 1, last)


class Grid:
    """Cells cut by the bounds of write boxes on every axis, the whole line included; a cell is wholly in a box or out.

    ``cuts`` of each axis are sorted; a cell is numbered over all axes.
    """

    def __init__(self, low: Ints, high: Ints, sizes: tuple[int, ...]) -> None:
        # One cell past the end of the axis, so that the number of cells does not depend on whether a box ends there.
        self.cuts = [
            np.unique(np.concatenate([low[:, axis], high[:, axis], [0, size + 1]])) for axis, size in enumerate(sizes)
        ]
        self.shape = tuple(len(cut) - 1 for cut in self.cuts)

    def ranges(self, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """Per box and axis, the half-open range of cells it touches; empty boxes have an empty range."""
        begin = np.stack([np.searchsorted(cut, low[:, i], "right") - 1 for i, cut in enumerate(self.cuts)], axis=1)
        end = np.stack([np.searchsorted(cut, high[:, i], "left") for i, cut in enumerate(self.cuts)], axis=1)
        end[(high <= low).any(axis=1)] = 0
        begin[(high <= low).any(axis=1)] = 0
        return begin, np.maximum(end, begin)

    def cells(self, begin: Ints, end: Ints) -> tuple[Ints, Ints]:
        """For each box, its number and its cells, one after another."""
        few("cells of regions", float((end - begin).prod(axis=1, dtype=np.float64).sum()))
        which = np.arange(len(begin))
        cell = np.zeros(len(begin), np.int64)
        for axis, size in enumerate(self.shape):
            repeated, along = spread(begin[which, axis], end[which, axis] - begin[which, axis])
            which, cell = which[repeated], cell[repeated] * size + along
        return which, cell

    def corner(self, cell: int) -> tuple[int, ...]:
        """The least element of a cell."""
        return tuple(int(cut[i]) for cut, i in zip(self.cuts, np.unravel_index(cell, self.shape), strict=True))
