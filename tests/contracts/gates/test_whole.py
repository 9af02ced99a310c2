"""Which whole numbers are settled."""

from __future__ import annotations

import torch

from amk.contracts.gates.whole import settled
from tests.contracts.gates.here import answer_of, trial_of


def test_an_index_between_values_a_rounding_apart_is_not_settled() -> None:
    x = torch.tensor([[1.0, 1.0 + 2.0**-23, 0.0], [1.0, 2.0, 0.0]])
    trial = trial_of(x, function=lambda x: x.argmax(-1))
    exact = answer_of(torch.tensor([1, 1]))
    (kept,) = settled(trial, (x,), answer_of(torch.tensor([0, 0])), exact)
    assert kept.tolist() == [1, 0]  # the first is replaced by what is right, the second stays wrong


def test_what_equals_the_float64_run_or_is_no_whole_number_stays_unasked() -> None:
    x = torch.rand(2, 3)
    trial = trial_of(x, function=lambda x: torch.empty(0)[7])
    values = (torch.tensor([1, 2]), torch.rand(2))
    kept = settled(trial, (x,), answer_of(*values), answer_of(torch.tensor([1, 2]), torch.rand(2).double()))
    assert all(a is b for a, b in zip(kept, values, strict=True))
