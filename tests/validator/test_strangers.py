"""A schedule file from a stranger: whatever can be read gets a verdict, never a traceback."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amk.errors import ScheduleFileError
from amk.ir.schedule import Schedule
from amk.validator import validate
from tests.builders import llama_graph, lower

SMALL = lower(
    llama_graph(hidden=16, layers=1, heads=2, kv_heads=1, head_dim=8, intermediate=16, vocab=11),
    workers=2,
    max_context=16,
)
TREE: Any = msgspec.to_builtins(SMALL)
NAMES = sorted(
    {b["id"] for b in TREE["buffers"]} | {c["id"] for c in TREE["counters"]} | {t["id"] for t in TREE["tasks"]}
)
WORDS = [
    *NAMES,
    "",
    "pos",
    "tokens",
    "x",
    "weight",
    "const",
    "kv",
    "input",
    "output",
    "state",
    "activation",
    "h200",
    "cpu",
]
NUMBERS = st.one_of(
    st.integers(-3, 20), st.sampled_from([2**31 - 1, -(2**31), 2**31, 2**40, 2**63, 2**64, -(2**63), 10**30, 64, 1000])
)
BOUNDS = st.one_of(
    NUMBERS,
    st.builds(
        lambda terms, base: {"terms": terms, "base": base},
        st.lists(st.tuples(st.sampled_from(["pos", "tokens", "x"]), NUMBERS), max_size=3),
        NUMBERS,
    ),
)
LEAVES = st.one_of(
    NUMBERS, st.sampled_from(WORDS), BOUNDS, st.booleans(), st.none(), st.floats(allow_nan=False, allow_infinity=False)
)


def places(tree: Any, path: tuple = ()) -> list[tuple]:
    """Paths of every leaf and every list."""
    found = [path] if not isinstance(tree, dict) else []
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, (list, tuple)) else ()
    for key, child in items:
        found += places(child, (*path, key))
    return found


def listed(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: listed(child) for key, child in tree.items()}
    return [listed(child) for child in tree] if isinstance(tree, (list, tuple)) else tree


TREE = listed(TREE)
PLACES = places(TREE)


def _change(tree: Any, path: tuple, data: st.DataObject) -> None:
    for key in path[:-1]:
        if (
            not isinstance(tree, (dict, list))
            or (isinstance(tree, list) and key >= len(tree))
            or (isinstance(tree, dict) and key not in tree)
        ):
            return
        tree = tree[key]
    last = path[-1]
    if isinstance(tree, list) and last < len(tree):
        action = data.draw(st.sampled_from(["set", "drop", "twice", "swap"]))
        if action == "drop":
            tree.pop(last)
        elif action == "twice":
            tree.insert(last, copy.deepcopy(tree[last]))
        elif action == "swap":
            tree[last], tree[0] = tree[0], tree[last]
        else:
            tree[last] = data.draw(LEAVES)
    elif isinstance(tree, dict) and last in tree:
        old = tree[last]
        same = st.sampled_from(WORDS) if isinstance(old, str) else NUMBERS if isinstance(old, int) else LEAVES
        tree[last] = data.draw(st.one_of(same, LEAVES)) if not isinstance(old, list) else []


@settings(max_examples=700, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_every_file_that_loads_gets_a_verdict(data: st.DataObject) -> None:
    tree = copy.deepcopy(TREE)
    for _ in range(data.draw(st.integers(1, 3))):
        _change(tree, data.draw(st.sampled_from(PLACES[1:])), data)
    try:
        schedule = Schedule.from_json(msgspec.json.encode(tree))
    except (ScheduleFileError, OverflowError):
        return
    verdict = validate(schedule)
    assert verdict.proved or verdict.findings
    assert all(str(finding) for finding in verdict.findings)


def test_the_untouched_file_is_proved() -> None:
    assert validate(Schedule.from_json(msgspec.json.encode(TREE))).proved


def test_nothing_at_all() -> None:
    bare = {**TREE, "tasks": [], "queues": [], "buffers": [], "counters": []}
    verdict = validate(Schedule.from_json(msgspec.json.encode(bare)))
    assert not verdict.proved
