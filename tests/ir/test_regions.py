"""Linear bounds: their arithmetic, their canonical form, and how a person reads them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amk.ir.regions import (
    Bound,
    Linear,
    Region,
    coefficient,
    concrete,
    linear,
    show,
    show_region,
    symbols,
    value,
    volume,
)

NAMES = ("pos", "tokens", "step")
small = st.integers(-1000, 1000)
environments = st.fixed_dictionaries({name: st.integers(0, 10_000) for name in NAMES})
bounds = st.builds(
    lambda base, terms: linear(base, **terms), small, st.dictionaries(st.sampled_from(NAMES), small, max_size=3)
)
boxes = st.lists(st.tuples(bounds, bounds), min_size=1, max_size=3).map(tuple)


@given(bounds, environments)
def test_a_bound_is_its_base_and_its_symbols_coefficients(bound: Bound, env: Mapping[str, int]) -> None:
    zero = dict.fromkeys(NAMES, 0)
    assert value(bound, env) == value(bound, zero) + sum(coefficient(bound, name) * env[name] for name in NAMES)
    for name in NAMES:
        assert value(bound, {**env, name: env[name] + 1}) - value(bound, env) == coefficient(bound, name)


@given(bounds)
def test_the_form_is_canonical(bound: Bound) -> None:
    if isinstance(bound, int):
        return
    assert bound.terms
    assert list(bound.terms) == sorted(set(bound.terms))
    assert all(k for _, k in bound.terms)
    assert bound == linear(bound.base, **dict(reversed(bound.terms)))


def test_a_bound_without_symbols_is_an_int() -> None:
    assert linear(5, pos=0) == 5
    assert isinstance(linear(5, pos=0), int)


@given(bounds, environments)
def test_what_is_shown_is_python_for_the_value(bound: Bound, env: Mapping[str, int]) -> None:
    assert eval(show(bound), {"__builtins__": {}}, dict(env)) == value(bound, env)


@pytest.mark.parametrize(
    ("bound", "text"),
    [
        (0, "0"),
        (-3, "-3"),
        (linear(pos=1), "pos"),
        (linear(-1, tokens=1), "tokens-1"),
        (linear(1, pos=1, tokens=1), "pos+tokens+1"),
        (linear(pos=-1), "-pos"),
        (linear(7, pos=2, tokens=-3), "2*pos-3*tokens+7"),
    ],
)
def test_show(bound: Bound, text: str) -> None:
    assert show(bound) == text


def test_show_region() -> None:
    region = Region(buffer="hidden", box=((0, linear(tokens=1)), (0, 64)))
    assert show_region(region) == "hidden[0:tokens, 0:64]"


@given(boxes, environments)
def test_volume_counts_the_points_of_the_concrete_box(
    box: tuple[tuple[Bound, Bound], ...], env: Mapping[str, int]
) -> None:
    sides = concrete(box, env)
    assert sides == tuple((value(low, env), value(high, env)) for low, high in box)
    expected = 1
    for low, high in sides:
        expected *= len(range(low, high))
    assert volume(box, env) == expected


def test_an_inverted_interval_is_empty() -> None:
    assert volume(((0, 4), (linear(pos=1), 8)), {"pos": 9}) == 0
    assert volume(((0, 4), (linear(pos=1), 8)), {"pos": 6}) == 8


@given(boxes)
def test_symbols_are_those_that_matter(box: tuple[tuple[Bound, Bound], ...]) -> None:
    used = {name for name in NAMES if any(coefficient(bound, name) for interval in box for bound in interval)}
    assert symbols(box) == used


def test_a_symbol_without_a_value_is_an_error() -> None:
    with pytest.raises(KeyError, match="pos"):
        value(linear(pos=1), {"tokens": 1})


@given(boxes)
def test_a_region_reads_back_as_it_was_written(box: tuple[tuple[Bound, Bound], ...]) -> None:
    region = Region(buffer="x", box=box)
    assert msgspec.json.decode(msgspec.json.encode(region), type=Region) == region
    assert all(isinstance(bound, int | Linear) for interval in region.box for bound in interval)
