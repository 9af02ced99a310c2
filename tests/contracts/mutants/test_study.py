"""A sample of the study."""

from __future__ import annotations

import random

from tests.contracts.mutants.broken import broken
from tests.contracts.mutants.correct import correct
from tests.contracts.mutants.study import document, is_accused, judged, passes_standard, violated

SAMPLE = 12


def test_a_sample_of_correct_kernels_is_not_accused() -> None:
    kernels = random.Random(5).sample(list(correct(60, seed=11)), SAMPLE)
    accused = [
        (kernel.text, violated(judgement)) for kernel, judgement in map(judged, kernels) if is_accused(judgement)
    ]
    assert not accused


def test_a_sample_of_broken_kernels_is_caught() -> None:
    kernels = random.Random(5).sample(list(broken(60, seed=11)), SAMPLE)
    found = [judged(kernel) for kernel in kernels]
    missed = [kernel.text for kernel, judgement in found if not is_accused(judgement)]
    assert not missed
    assert any(passes_standard(judgement) for _, judgement in found)
    counted = document({"correct": [], "broken": found})
    assert counted["caught"]["count"] == SAMPLE
    assert sum(row["kernels"] for row in counted["mutations"].values()) == SAMPLE
