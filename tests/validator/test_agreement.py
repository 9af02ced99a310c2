"""The validator against the oracle on random tiny models: no false accept, and no false reject.

``AMK_TEST_SEED`` chooses other models; it is printed with the tally, and every failure names the seed of its model.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import msgspec
import pytest

from amk.validator import AccessModel, Outcome, Verdict, validate_model
from tests.oracle.explore import TooBigError, explore
from tests.oracle.generate import random_model

SEED = int(os.environ.get("AMK_TEST_SEED", "20260101"))
MODELS = 4000
PARTS = 4

# What the oracle must have seen when the validator names a rule: a verdict for the wrong reason is wrong too.
MEANS = {
    "AMK-V301": {"race"},
    "AMK-V302": {"deadlock"},
    "AMK-V303": {"read"},
    "AMK-V304": {"read"},
    "AMK-V305": {"read", "kv"},
    "AMK-V306": {"tag", "deadlock"},
    "AMK-V307": {"deadlock", "tag order"},
    "AMK-V308": {"tag order", "deadlock"},
    "AMK-V310": {"stream"},
}


def disagreement(model: AccessModel, verdict: Verdict, seen: set[str]) -> str:
    """Why the two do not agree; empty if they do."""
    if verdict.outcome is Outcome.PROVED and seen:
        return f"accepted, but the oracle saw {seen}"
    if verdict.outcome is Outcome.REFUTED and not seen:
        return f"refuted, but no interleaving goes wrong: {verdict.findings[0]}"
    if verdict.outcome is Outcome.UNKNOWN and model.steps_max <= 4:
        return "left open although all steps could be unrolled"
    for finding in verdict.findings:
        wanted = MEANS.get(finding.code, seen)
        if not finding.unknown and not wanted & seen:
            return f"{finding}, but the oracle saw only {seen}"
    return ""


@pytest.mark.parametrize("part", range(PARTS))
def test_verdicts_are_equal(part: int, record_property: pytest.FixtureRequest) -> None:
    tally: Counter[str] = Counter()
    codes: Counter[str] = Counter()
    for number in range(part, MODELS, PARTS):
        seed = SEED * 1_000_003 + number
        model = random_model(random.Random(seed))
        verdict = validate_model(model)
        try:
            seen = explore(msgspec.to_builtins(model))
        except TooBigError:
            tally["too big"] += 1
            continue
        tally[verdict.outcome.name] += 1
        codes.update(verdict.codes())
        why = disagreement(model, verdict, seen)
        assert not why, f"model of seed {seed}: {why}\n{msgspec.json.format(msgspec.json.encode(model)).decode()}"
    print(f"AMK_TEST_SEED={SEED} part {part}: {dict(tally)} {dict(codes)}")
    assert tally["too big"] * 20 < MODELS // PARTS
    assert tally["PROVED"] * 5 > MODELS // PARTS
    assert tally["REFUTED"] * 5 > MODELS // PARTS
