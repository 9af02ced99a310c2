"""Boxes against brute force: overlap at a distance, the grid of cells, and the points that stand for all positions."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from amk.ir.regions import POS, TOKENS, Box, linear, value
from amk.validator.boxes import BoxTable, Domain, Grid, domain, meeting_point, overlapping, spread
from amk.validator.chains import points

BOUND = st.builds(
    lambda base, by_pos, by_tokens: linear(base, **{POS: by_pos, TOKENS: by_tokens}),
    st.integers(-3, 6),
    st.sampled_from([0, 0, 0, 1, 1, 2, -1]),
    st.sampled_from([0, 0, 0, 1, -1]),
)
BOXES = st.lists(st.tuples(st.tuples(BOUND, BOUND), st.tuples(BOUND, BOUND)), min_size=1, max_size=5)
DOMAINS = st.builds(
    lambda low, room, steps, tokens, more: domain(
        pos_low=low, max_context=low + tokens + room, steps_max=steps, tokens=(tokens, tokens + more)
    ),
    st.integers(0, 2),
    st.integers(0, 6),
    st.integers(1, 4),
    st.integers(1, 2),
    st.integers(0, 2),
)


def elements(box: Box, p: int, m: int) -> set[tuple[int, ...]]:
    env = {POS: p, TOKENS: m}
    return set(itertools.product(*(range(value(low, env), value(high, env)) for low, high in box)))


def moments(reach: Domain, delta: int) -> list[tuple[int, int]]:
    return [
        (p, m)
        for m in reach.tokens
        if reach.reaches(m, delta)
        for p in range(reach.pos_low, reach.last_pos(m, delta) + 1)
    ]


@settings(max_examples=200, deadline=None)
@given(BOXES, DOMAINS, st.integers(0, 3))
def test_overlap_is_exact(boxes: list[Box], reach: Domain, delta: int) -> None:
    table = BoxTable(boxes, 2)
    every = np.arange(len(boxes))
    found = set(zip(*(side.tolist() for side in overlapping(table, every, every, delta, reach)), strict=True))
    for i, j in itertools.product(range(len(boxes)), repeat=2):
        met = any(elements(boxes[i], p, m) & elements(boxes[j], p + delta * m, m) for p, m in moments(reach, delta))
        assert ((i, j) in found) == met
        point = meeting_point(table, i, j, delta, reach)
        assert (point is not None) == met
        assert point is None or point in moments(reach, delta)


@settings(max_examples=200, deadline=None)
@given(BOXES, DOMAINS)
def test_hull_holds_everything(boxes: list[Box], reach: Domain) -> None:
    low, high = BoxTable(boxes, 2).hull(reach)
    for number, box in enumerate(boxes):
        for p, m in moments(reach, 0):
            for point in elements(box, p, m):
                assert (low[number] <= point).all()
                assert (point < high[number]).all()


@settings(max_examples=200, deadline=None)
@given(BOXES, st.integers(0, 6), st.integers(1, 3))
def test_cells_are_in_a_box_or_out(boxes: list[Box], p: int, m: int) -> None:
    low, high = BoxTable(boxes, 2).at(p, m)
    grid = Grid(low, high, (12, 12))
    which, cell = grid.cells(*grid.ranges(low, high))
    for number, box in enumerate(boxes):
        inside = elements(box, p, m)
        corners = {grid.corner(at) for at in cell[which == number].tolist()}
        assert corners <= inside
        assert bool(corners) == bool(inside)


def _layout(boxes: list[Box], p: int, m: int) -> tuple[bytes, ...]:
    low, high = BoxTable(boxes, 2).at(p, m)
    grid = Grid(low, high, (40, 40))
    return tuple(part.tobytes() for part in grid.ranges(low, high))


@settings(max_examples=150, deadline=None)
@given(BOXES, DOMAINS)
def test_points_meet_every_layout(boxes: list[Box], reach: Domain) -> None:
    boxes = [*boxes, ((0, 39), (0, 39))]  # where a box meets the buffer's edge is no order of bounds
    tried = {_layout(boxes, p, m) for p, m in points(BoxTable(boxes, 2), reach)}
    assert tried == {_layout(boxes, p, m) for p, m in moments(reach, 0)} or not BoxTable(boxes, 2).moves
    assert tried <= {_layout(boxes, p, m) for p, m in moments(reach, 0)}


def test_spread() -> None:
    which, at = spread(np.array([10, 20, 30]), np.array([2, 0, 3]))
    assert which.tolist() == [0, 0, 2, 2, 2]
    assert at.tolist() == [10, 11, 30, 31, 32]
