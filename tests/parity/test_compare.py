"""The parity verdict on backends whose logits are written by the test."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from amk.parity.compare import ParityReport, compare, summarise
from amk.runtime.session import Session

VOCAB = 11
BOUND = 0.05
PROMPT = [3, 1, 4]
TOKENS = 20


def true_logits(ids: Sequence[int]) -> torch.Tensor:
    """A small deterministic model: rows of logits that depend on the last token and the position."""
    rows = torch.arange(len(ids)).unsqueeze(1) * 7 + torch.tensor(list(ids)).unsqueeze(1) * 3 + torch.arange(VOCAB)
    return torch.sin(rows.to(torch.float32) * 1.7) * 3


class Oracle:
    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        return true_logits(ids)


class Model:
    """The same model with a disturbance: ``disturb(index, logits)`` for the index-th new token."""

    max_context = 64
    tokens_per_pass = 8
    eos_slots = 4

    def __init__(self, disturb=lambda index, row: row, choose=lambda index, token: token) -> None:
        self.disturb = disturb
        self.choose = choose

    def begin(self, prompt: list[int], eos: list[int]) -> None:
        self.ids = list(prompt)
        self.prompt = len(prompt)

    def enter(self, ids: list[int]) -> None:
        pass

    def run(self, *, pos: int, tokens: int, steps: int):
        if pos + tokens * steps >= self.prompt:
            index = len(self.ids) - self.prompt
            self.row = self.disturb(index, true_logits(self.ids)[-1].clone())
            self.ids.append(self.choose(index, int(self.row.argmax())))
        yield steps

    def token(self, position: int) -> int:
        return self.ids[position]

    def logits(self) -> torch.Tensor:
        return self.row


def verdict(model: Model, *, tokens: int = TOKENS, bound: float = BOUND) -> ParityReport:
    session = Session(model, vocab=VOCAB, context_limit=64)
    prompts = list(compare(session, Oracle(), [("a", PROMPT), ("b", [5])], tokens=tokens, bound=bound))
    return summarise(prompts, bound=bound)


def at(wanted: int, change):
    """``change`` applied at one new token only."""
    return lambda index, row: change(row) if index == wanted else row


def test_equal_is_a_pass_and_every_token_is_counted() -> None:
    report = verdict(Model())
    assert (report.verdict, report.failure) == ("pass", "")
    assert report.tokens == 2 * TOKENS
    assert report.ties == 0
    assert [prompt.first_divergence for prompt in report.prompts] == [None, None]


def test_one_differing_token_of_twenty_fails() -> None:
    report = verdict(Model(choose=lambda index, token: (token + 1) % VOCAB if index == 13 else token))
    assert report.verdict == "fail"
    assert "token 13" in report.prompts[0].failure
    assert "its own logits say" in report.prompts[0].failure


def test_a_range_above_the_bound_fails_though_the_token_agrees() -> None:
    def widen(row: torch.Tensor) -> torch.Tensor:
        row[int(row.argmin())] -= 2 * BOUND
        return row

    report = verdict(Model(at(4, widen)))
    assert report.verdict == "fail"
    assert "token 4" in report.prompts[0].failure
    assert "above the bound" in report.prompts[0].failure
    assert report.prompts[0].first_divergence is None


def test_a_constant_added_to_all_logits_is_no_difference() -> None:
    report = verdict(Model(lambda index, row: row + 100.0), bound=1e-3)
    assert report.verdict == "pass"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_logit_that_is_not_finite_fails(value: float) -> None:
    def poison(row: torch.Tensor) -> torch.Tensor:
        row[0] = value
        return row

    assert verdict(Model(at(7, poison))).verdict == "fail"


def swap_top_two(row: torch.Tensor, lead: float) -> torch.Tensor:
    first, second = row.topk(2).indices.tolist()
    row[second] = row[first] + lead
    return row


def test_a_divergence_beyond_the_bound_is_never_a_tie() -> None:
    report = verdict(Model(at(2, lambda row: swap_top_two(row, 0.01))))
    assert report.verdict == "fail"
    assert report.prompts[0].first_divergence == 2


class CloseOracle:
    """An oracle whose two best tokens are ``margin`` apart after the third new token of the first prompt."""

    def __init__(self, margin: float) -> None:
        self.margin = margin

    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        rows = true_logits(ids)
        if len(ids) > len(PROMPT) + 2:
            row = rows[len(PROMPT) + 1]
            first, second = row.topk(2).indices.tolist()
            row[second] = row[first] - self.margin
        return rows


def close(margin: float, lead: float, *, tokens: int) -> ParityReport:
    def disturb(index: int, row: torch.Tensor) -> torch.Tensor:
        return swap_top_two(row, lead) if index == 2 else row

    session = Session(Model(disturb), vocab=VOCAB, context_limit=600)
    session.backend.max_context = 600
    prompts = list(compare(session, CloseOracle(margin), [("a", PROMPT)], tokens=tokens, bound=BOUND))
    return summarise(prompts, bound=BOUND)


def test_a_tie_is_named_and_the_comparison_goes_on() -> None:
    report = close(0.01, 0.01, tokens=210)
    assert (report.verdict, report.ties) == ("pass", 1)
    (tie,) = report.prompts[0].ties
    assert tie.position == 2
    assert tie.margin == pytest.approx(0.01, abs=1e-5)
    assert tie.margin <= tie.logit_range <= BOUND
    assert report.prompts[0].first_divergence == 2
    assert report.prompts[0].compared == 210


def test_too_many_ties_fail() -> None:
    report = close(0.01, 0.01, tokens=100)
    assert report.verdict == "fail"
    assert "1 of 100 tokens are ties" in report.failure


def test_nothing_compared_is_a_failure() -> None:
    assert summarise([], bound=BOUND).verdict == "fail"
