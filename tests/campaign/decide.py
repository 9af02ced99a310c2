"""One case of the campaign: make it, ask the validator, and decide it without the validator."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import msgspec

from amk.ir.regions import POS, TOKENS
from amk.ir.schedule import Schedule
from amk.validator import AccessModel, Outcome, Verdict, validate, validate_model
from tests.campaign.bases import Base, pick
from tests.campaign.classes import JUDGED, Mutation
from tests.campaign.illegal import ILLEGAL
from tests.oracle.explore import TooBigError, explore
from tests.oracle.generate import random_kind, random_model
from tests.oracle.judge import Launch, judge
from tests.oracle.play import as_model

# Of the mutants of lowerings; there, one class is much like another.
ILLEGAL_SHARE = 0.15
CLASSES = tuple(JUDGED.items())
ILLEGALS = tuple(ILLEGAL.items())

# What the walk does not look at, and the judge does: it knows nothing of outputs, bounds and constants.
UNWALKED = frozenset({"output", "range", "const"})


@dataclass(kw_only=True)
class Case:
    """What one case came to.

    Attributes
    ----------
    kind
        Mutation class, or how a random model was made.
    by
        Who decided it: ``walk`` (every interleaving), ``judge`` (by definition) or ``construction``.
    faults
        What they saw; None where nothing bounds how far workers are apart and a launch of four steps is right.
    wrong
        How validator and decision differ; empty if they do not.
    """

    kind: str
    base: str
    outcome: Outcome
    codes: tuple[str, ...]
    by: tuple[str, ...]
    faults: set[str] | None = field(default_factory=set)
    wrong: str = ""


def of_lowering(seed: int, number: int) -> Case:
    """Case ``number``: a lowering with one change."""
    rng = random.Random(f"{seed}/lowering/{number}")
    legal = rng.random() >= ILLEGAL_SHARE
    name, mutation = rng.choice(CLASSES if legal else ILLEGALS)
    base, mutant = _mutant(rng, mutation)
    verdict = validate(mutant)
    if legal:
        return decided(name, base, mutant, verdict)
    wrong = "" if verdict.outcome is Outcome.REFUTED else f"{verdict.outcome.name}, and illegal by construction"
    return _case(name, base.name, verdict, by=("construction",), faults={"illegal"}, wrong=wrong)


def _mutant(rng: random.Random, mutation: Mutation) -> tuple[Base, Schedule]:
    """A lowering and its mutant; not every lowering has a place for every class."""
    while True:
        base = pick(rng)
        mutant = mutation(rng, base.schedule)
        if mutant is not None and mutant != base.schedule:
            return base, mutant


def decided(name: str, base: Base, mutant: Schedule, verdict: Verdict) -> Case:
    """A schedule and its verdict, held against the judge and, if it is small enough, against the walk."""
    plain = plain_of(mutant)
    faults = judge(plain, launches=None if base.walked else some_launches(plain))
    case = _case(name, base.name, verdict, by=("judge",), faults=faults, wrong=disagreement(verdict, faults))
    return with_walk(case, plain) if base.walked else case


def of_random(seed: int, number: int) -> Case:
    """Case ``number``: a random tiny model, walked."""
    text = f"{seed}/random/{number}"
    model: AccessModel = random_model(random.Random(text))
    verdict, plain = validate_model(model), msgspec.to_builtins(model)
    faults = judge(plain)
    wrong = disagreement(verdict, faults)
    kind = f"random {random_kind(random.Random(text))}"
    return with_walk(_case(kind, "", verdict, by=("judge",), faults=faults, wrong=wrong), plain)


def with_walk(case: Case, plain: dict[str, Any]) -> Case:
    """The case with every interleaving walked too: all three must agree."""
    try:
        walked = explore(plain)
    except TooBigError:
        return case
    case.by = ("walk", "judge")
    judged = case.faults
    case.faults = walked | (UNWALKED & (judged or set()))
    if judged is not None and bool(judged) != bool(case.faults):
        case.wrong = f"judge: {sorted(judged)}, but the walk saw {sorted(walked)}"
    elif (case.outcome is Outcome.PROVED and case.faults) or (case.outcome is Outcome.REFUTED and not case.faults):
        case.wrong = f"{case.outcome.name}, but the walk saw {sorted(walked)}"
    return case


def disagreement(verdict: Verdict, faults: set[str] | None) -> str:
    """How a verdict differs from what was seen; empty if it does not."""
    seen = "nothing that bounds how far its workers are apart" if faults is None else str(sorted(faults))
    if verdict.outcome is Outcome.PROVED and (faults or faults is None):
        return f"PROVED, but the judge saw {seen}"
    if verdict.outcome is Outcome.REFUTED and not faults:
        return f"REFUTED, but the judge saw {seen}: {verdict.findings[0]}"
    return ""


def _case(kind: str, base: str, verdict: Verdict, *, by: tuple[str, ...], faults: set[str] | None, wrong: str) -> Case:
    codes = tuple(sorted(verdict.codes()))
    return Case(kind=kind, base=base, outcome=verdict.outcome, codes=codes, by=by, faults=faults, wrong=wrong)


def plain_of(schedule: Schedule) -> dict[str, Any]:
    """The schedule as the oracles' plain data, with the launches that it covers."""
    ranges = {symbol.name: (symbol.low, symbol.high) for symbol in schedule.symbols}
    return as_model(schedule) | {
        "max_context": schedule.max_context,
        "steps_max": schedule.steps_max,
        "pos_low": ranges[POS][0],
        "tokens": ranges[TOKENS],
    }


def some_launches(plain: dict[str, Any]) -> list[Launch]:
    """The first position with the most rows, one in the middle, and the last position: no bound lies otherwise.

    Bounds of a lowering are constants and 0, pos and pos + tokens beside constants; they change their order where pos
    is 0, where it is not, and where a region reaches the end of its buffer.
    """
    low, high = plain["tokens"]
    context, steps = plain["max_context"], plain["steps_max"]
    wanted = {(0, high), (min(5, context - 1), min(2, high)), (context - low, low)}
    return [(pos0, m, min(steps, (context - pos0) // m)) for pos0, m in sorted(wanted) if pos0 + m <= context]
