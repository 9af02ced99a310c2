"""G00: the benchmark's own test, which decides nothing."""

from __future__ import annotations

import pytest

from tests.contracts.gates.judged import found, judged, module


@pytest.mark.parametrize(
    ("candidate", "loose", "strict"),
    [
        ("return x + x", 5.0, 5.0),
        ("return x * 2 * (1 + 1e-3)", 5.0, 0.0),
        ("return x * 2 + 0.5", 0.0, 0.0),
        ("return (x * 2)[:, :-1]", 0.0, 0.0),
        ("return x * 2, x", 0.0, 0.0),
        ("return (x * 2).double()", 0.0, 0.0),
    ],
)
def test_it_counts_seeds_at_both_tolerances(candidate: str, loose: float, strict: float) -> None:
    finding = found(module("return x * 2", candidate), "G00")
    assert finding.figures["seeds"] == 5.0
    assert (finding.figures["passed at 0.01"], finding.figures["passed at 0.0001"]) == (loose, strict)
    assert finding.verdict == ("pass" if finding.figures["passed at 0.01"] == 5.0 else "violation")


def test_a_fault_that_few_inputs_show() -> None:
    finding = found(module("return x * 2", "return torch.where(x > 3, x, x * 2)"), "G00")
    assert 0.0 < finding.figures["passed at 0.01"] < 5.0
    assert finding.verdict == "violation"


def test_nan_equals_nothing() -> None:
    assert found(module("return x * torch.nan", "return x * torch.nan"), "G00").verdict == "violation"


def test_its_violation_is_no_verdict_on_the_kernel() -> None:
    judgement = judged(module("return x * torch.nan", "return x * torch.nan"), "G00", "G01")
    assert judgement.status == "conforms"


@pytest.mark.parametrize("reference", ["return x > 0.5", "return x.argmax(-1)", "return torch.complex(x, x)"])
def test_every_kind_of_result_can_be_judged(reference: str) -> None:
    judgement = judged(module(reference, reference), "G00", "G01", "G02", "G03", "G04", "G05", "G06")
    assert judgement.status == "conforms", judgement.why
    assert judgement.finding("G03").verdict == "pass"
