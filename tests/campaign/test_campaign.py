"""A slice of the campaign, other cases on every day that CI runs, and every model's lowering with its layers cut.

``AMK_TEST_SEED`` chooses the cases; it is printed, and a failure names the case: ``--seed S --only N`` shows it again.
"""

from __future__ import annotations

import datetime as dt
import os

import pytest

from amk.validator import Finding, Outcome, Verdict, validate
from tests.campaign import decide
from tests.campaign.__main__ import campaign, case, cases_with
from tests.campaign.bases import every
from tests.campaign.classes import JUDGED
from tests.campaign.decide import decided
from tests.campaign.illegal import ILLEGAL
from tests.campaign.lowerings import CHIPS, KV_TYPES, plans, shapes, verdict_of
from tests.campaign.tally import Tally

SEED = int(os.environ.get("AMK_TEST_SEED") or dt.datetime.now(tz=dt.UTC).strftime("%Y%m%d"))
CASES = 5000
PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_a_slice(part: int) -> None:
    tally = Tally()
    for number in range(part * CASES // PARTS, (part + 1) * CASES // PARTS):
        tally.add(number, case(SEED, number))
    found = tally.document()
    print(f"AMK_TEST_SEED={SEED} part {part}:", {key: found[key] for key in ("proved", "refuted", "unknown")})
    assert not found["disagreements"], (SEED, found["disagreements"][:5])
    assert found["decided_by_walk"] > CASES // PARTS // 3
    assert found["mutants_of_lowerings"] == CASES // PARTS * 3 // 5
    assert min(found["proved"], found["refuted"]) > CASES // PARTS // 10
    classes = set(found["per_class"])
    assert set(JUDGED) | set(ILLEGAL) <= classes, "a class of mutants never came up"


def test_what_is_mutated_is_right() -> None:
    for base in every():
        verdict = validate(base.schedule)
        assert verdict.proved, (base.name, verdict.findings)
        assert not decided("none", base, base.schedule, verdict).wrong, base.name


def test_a_case_is_always_the_same() -> None:
    first, again = campaign(7, cases_with(9)), campaign(7, cases_with(9))
    assert first.document() == again.document()
    assert first.counts["mutants"] == 9


@pytest.mark.parametrize("outcome", [Outcome.PROVED, Outcome.REFUTED])
def test_a_validator_of_one_answer_is_caught(outcome: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the oracles blind, or never asked, a validator that always says the same would pass."""
    finding = Finding(code="AMK-V000", title="whim", what="no reason")
    findings = () if outcome is Outcome.PROVED else (finding,)
    verdict = Verdict(outcome=outcome, findings=findings, statistics={}, seconds=0.0)
    right = campaign(7, 80).document()
    monkeypatch.setattr(decide, "validate", lambda _: verdict)
    monkeypatch.setattr(decide, "validate_model", lambda _: verdict)
    found = campaign(7, 80).document()
    assert not right["disagreements"]
    assert found["false_accepts"] == (right["refuted"] if outcome is Outcome.PROVED else 0)
    assert found["false_rejects"] == (right["proved"] if outcome is Outcome.REFUTED else 0)
    assert min(right["refuted"], right["proved"]) > 10


def test_oracles_that_differ_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decide, "judge", lambda *_, **__: {"race"})
    found = campaign(7, 80).document()
    assert found["oracles_disagree"] > 5


def test_there_are_models_enough() -> None:
    assert len(shapes()) >= 10
    assert len(CHIPS) == 3
    assert len(KV_TYPES) == 2


@pytest.mark.parametrize("name", shapes())
def test_a_model_is_proved_for_every_chip(name: str) -> None:
    for model, chip, kv_type, graph in plans(layers=2):
        if model == name:
            verdict = verdict_of(chip, kv_type, graph)
            assert verdict.proved, (chip, kv_type, verdict.findings)
            assert verdict.statistics["window"] == 2
