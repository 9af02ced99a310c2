"""G03: equal inputs, equal bits."""

from __future__ import annotations

import pytest

from tests.contracts.gates.judged import assert_conforming, assert_violating, found, module

STATE = "self.calls = 0"
RANDOM = "import random\nnoise = random.SystemRandom().random()\n"


def test_violating_control() -> None:
    assert "different results in 21 runs" in assert_violating("G03").why


def test_conforming_control() -> None:
    assert_conforming("G03")


@pytest.mark.parametrize(
    "candidate",
    [
        f"{RANDOM}return x * (1 + 1e-6 * noise)",
        "self.calls += 1\nreturn x * (1 + 1e-6 * (self.calls > 15))",
        "self.calls = max(self.calls, float(x.max()))\nreturn x + 1e-6 * self.calls",
        "import os\nreturn x * (1 + 1e-6 * os.getpid())",
    ],
    ids=["random", "from the sixteenth call on", "from other inputs on", "in another process"],
)
def test_bits_that_change_are_found(candidate: str) -> None:
    text = module("return x * 1", candidate, state=STATE)
    finding = found(text, "G03")
    assert finding.verdict == "violation"
    assert finding.failing is not None


def test_a_reference_that_varies_asks_for_nothing() -> None:
    noisy = f"{RANDOM}return x * (1 + noise)"
    assert found(module(noisy, noisy), "G03").verdict == "not applicable"


def test_random_numbers_of_torch_are_the_same_in_each_run() -> None:
    drop = "return nn.functional.dropout(x, 0.5)"
    assert found(module(drop, "return torch.dropout(x, 0.5, True)"), "G03").verdict == "pass"
