"""The five tricky schedules and the traps: the validator and the oracle, each against the verdict that is known."""

from __future__ import annotations

import msgspec
import pytest

from amk.validator import Outcome, validate_model
from tests.oracle.explore import explore
from tests.validator import traps, traps_far, tricky  # fills the table
from tests.validator.cases import CASES, Case

assert tricky
assert traps
assert traps_far

each = pytest.mark.parametrize("case", CASES.values(), ids=lambda case: case.name)


@each
def test_verdict(case: Case) -> None:
    verdict = validate_model(case.model)
    assert (case.code in verdict.codes()) if case.code else verdict.proved, [str(f) for f in verdict.findings]
    assert case.code in verdict.codes() or not verdict.findings


# What the oracle has no eye for: rules about what a launch leaves to others.
BEYOND_THE_ORACLE = {"AMK-V309", "AMK-V315", "AMK-V318"}


@pytest.mark.parametrize(
    "case", [case for case in CASES.values() if case.code not in BEYOND_THE_ORACLE], ids=lambda case: case.name
)
def test_oracle_agrees(case: Case) -> None:
    steps = min(case.model.steps_max, 5 if sum(map(len, case.model.queues)) <= 2 else 3)
    small = msgspec.structs.replace(case.model, steps_max=steps)
    if small.max_context > 100:
        small = msgspec.structs.replace(small, max_context=4)
    found = explore(msgspec.to_builtins(small))
    assert bool(found) == (validate_model(small).outcome is Outcome.REFUTED), found


@each
def test_witness_names_a_task(case: Case) -> None:
    names = {node.id for queue in case.model.queues for node in queue}
    for finding in validate_model(case.model).findings:
        told = finding.unknown or finding.what.startswith("and ") or any(name in finding.what for name in names)
        assert told, finding
