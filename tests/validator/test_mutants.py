"""Real lowerings are proved; a change of any kind is refuted, or is harmless for a reason that is checked."""

from __future__ import annotations

import random

import pytest

from amk.ir.schedule import Schedule
from amk.target import TARGETS
from amk.validator import Outcome, Verdict, validate
from tests.builders import llama_graph, lower
from tests.validator.changes import ALWAYS, OFTEN

GRAPHS = {
    "gqa": llama_graph(hidden=64, layers=3, heads=4, kv_heads=2, head_dim=16, intermediate=96, vocab=101),
    "mha": llama_graph(hidden=40, layers=2, heads=5, kv_heads=5, head_dim=8, intermediate=72, vocab=67, tied=False),
    "mqa": llama_graph(hidden=112, layers=2, heads=7, kv_heads=1, head_dim=16, intermediate=200, vocab=1009),
}
WORKERS = (1, 2, 3, 7, 32)


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    return lower(GRAPHS["gqa"], workers=5)


def told(verdict: Verdict) -> list[str]:
    return [str(finding) for finding in verdict.findings]


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("name", GRAPHS)
def test_a_lowering_is_proved(name: str, workers: int) -> None:
    verdict = validate(lower(GRAPHS[name], workers=workers))
    assert verdict.proved, told(verdict)


@pytest.mark.parametrize("chip", ["a100", "h200", "rtx5090"])
def test_a_lowering_for_a_chip_is_proved(chip: str) -> None:
    verdict = validate(lower(GRAPHS["gqa"], TARGETS[chip], bf16_kv=True))
    assert verdict.proved, told(verdict)
    assert verdict.statistics["window"] == 2


@pytest.mark.parametrize("name", ALWAYS)
def test_a_mutant_is_refuted(name: str, schedule: Schedule) -> None:
    for seed in range(6):
        mutant = ALWAYS[name](random.Random(seed), schedule)
        verdict = validate(mutant)
        assert verdict.outcome is Outcome.REFUTED, f"{name}, seed {seed}: {told(verdict)}"


@pytest.mark.parametrize("name", OFTEN)
def test_a_mutant_is_refuted_or_every_order_of_its_tasks_is_right(name: str, schedule: Schedule) -> None:
    refuted = 0
    for seed in range(20):
        mutant = OFTEN[name](random.Random(seed), schedule)
        verdict = validate(mutant)
        assert verdict.outcome is not Outcome.UNKNOWN, told(verdict)
        refuted += verdict.outcome is Outcome.REFUTED
        if verdict.proved:
            assert_any_order_reads_right(mutant, random.Random(seed))
    assert refuted, f"no mutant of {name} was refuted"


def assert_any_order_reads_right(schedule: Schedule, rng: random.Random) -> None:
    """Play a launch of three steps in several random legal orders and look at every word's version when it is read."""
    from tests.oracle.play import play

    for _ in range(4):
        faults = play(schedule, steps=3, pos0=2, m=2, rng=rng)
        assert not faults, faults
