"""The standard test as a gate and the benchmark's rule, on a sample; and what the kept study says."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import msgspec
import pytest

from tests.contracts.agreement import CALLS_BEFORE, Study, gate_accepts, row_of, rule_accepts, study
from tests.contracts.gates.judged import module
from tests.contracts.mutants.broken import broken
from tests.contracts.mutants.compose import Kernel
from tests.contracts.mutants.correct import correct

KEPT = sorted((Path(__file__).parents[2] / "bench/results/cpu").glob("*-verifier-agreement.json"))

BY_ADDRESS = """
if getattr(self, "address", 0) != x.data_ptr():
    self.address, self.kept = x.data_ptr(), x * 2
return self.kept
"""


@pytest.mark.parametrize(
    ("candidate", "accepted"),
    [
        ("return x + x", True),
        ("return x * 2.001", True),
        ("return x * 2.1", False),
        ("return (x * 2)[:-1]", False),
        ("return (x * 2).double()", False),
        ("raise ValueError('no')", False),
        ("import os\nos._exit(3)", False),
        ("return torch.where(x > 0, x * 2, torch.nan)", False),
    ],
)
def test_both_say_the_same_of_plain_cases(candidate: str, accepted: bool) -> None:
    text = module("return x * 2", candidate)
    assert rule_accepts(text) is accepted
    assert gate_accepts(text)[0] is accepted


def test_what_decides_a_disagreement_can_be_told() -> None:
    by_address = module("return x * 2", BY_ADDRESS)
    assert rule_accepts(by_address, keep=True)
    by_calls = module("return x * 2", "self.calls = getattr(self, 'calls', 0) + 1\nreturn x * (2 + self.calls // 6)")
    assert rule_accepts(by_calls)
    assert not rule_accepts(by_calls, calls=CALLS_BEFORE)
    row = row_of(Kernel(name="by calls", mutation="", text=by_calls))
    assert (row.rule, row.gate) == (True, False)
    assert row.explained.startswith("the number of calls decides")


def test_a_sample_of_the_study() -> None:
    found = study([*islice(correct(6, seed=1), 6), *islice(broken(6, seed=1), 6)])
    assert found.kernels == 12
    assert found.both_accept >= 6
    assert all(row.rule and row.gate for row in found.rows[:6])
    assert all(row.explained for row in found.disagreements)
    assert found.agreement >= 10 / 12


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_the_kept_study_is_large_and_every_disagreement_is_explained(path: Path) -> None:
    kept = msgspec.json.decode(path.read_bytes(), type=Study)
    assert kept.kernels == len(kept.rows) >= 200
    assert kept.both_accept + kept.both_refuse + len(kept.disagreements) == kept.kernels
    assert kept.agreement == (kept.both_accept + kept.both_refuse) / kept.kernels >= 0.95
    assert all(row.explained for row in kept.disagreements)
