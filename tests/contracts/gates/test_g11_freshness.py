"""G11: answers of another call, and rows that depend on one another."""

from __future__ import annotations

import pytest

from tests.contracts.gates.judged import assert_conforming, assert_violating, found, module

WEIGHT = "self.weight = nn.Parameter(torch.randn(40, 40) / 6)"
TWO = "self.weight = nn.Parameter(torch.randn(40, 40) / 6)\nself.bias = nn.Parameter(torch.randn(40))"


def test_violating_control() -> None:
    assert "parameter weight changed in place" in assert_violating("G11").why


def test_conforming_control() -> None:
    assert_conforming("G11")


@pytest.mark.parametrize(
    ("reference", "candidate", "case", "said"),
    [
        # Results kept by the address of the input.
        (
            "return x * 2",
            """
            if getattr(self, "address", 0) != x.data_ptr():
                self.address, self.kept, self.given = x.data_ptr(), x * 2, x
            return self.kept.clone()
            """,
            "inputs overwritten in place",
            "before the change",
        ),
        # Results kept by the shape of the input.
        (
            "return torch.tanh(x) + 9",
            """
            if getattr(self, "kept", x[:0]).shape != x.shape:
                self.kept = torch.tanh(x) + 9
            return self.kept.clone()
            """,
            "x1, x2, x1, x2",
            "before the change",
        ),
        # One buffer for all answers.
        (
            "return x * 2",
            """
            if getattr(self, "out", x[:0]).shape != x.shape:
                self.out = torch.empty_like(x)
            return torch.mul(x, 2, out=self.out)
            """,
            "x1, x2, x1, x2",
            "changed later: earlier output 0",
        ),
        # A scale taken from the first input that ever came.
        (
            "return x / x.abs().amax()",
            "self.scale = getattr(self, 'scale', x.abs().amax())\nreturn x / self.scale",
            "x1, x2, x1, x2",
            "times the yardstick",
        ),
        # Counts its calls.
        (
            "return x * 2",
            "self.count = getattr(self, 'count', 0) + 1\nreturn x * 2 * (1 + 1e-6 * (self.count // 2))",
            "x1, x2, x1, x2",
            "another answer the second time",
        ),
        # One of two parameters is kept.
        (
            "return x @ self.weight + self.bias",
            "self.kept = getattr(self, 'kept', self.bias.detach().clone())\nreturn x @ self.weight + self.kept",
            "parameter bias changed in place",
            "before the change",
        ),
        # A factor that is one for the batch that it was made for.
        (
            "return x - x.mean(-1, keepdim=True)",
            "return (x - x.mean(-1, keepdim=True)) * (len(x) / 6)",
            "batch sliced",
            "on the rows beside them",
        ),
        # One maximum for all rows, beside which small rows vanish.
        (
            "return torch.softmax(x, -1)",
            "y = (x - x.amax()).exp()\nreturn y / y.sum(-1, keepdim=True)",
            "batch with large rows sliced",
            "on the rows beside them",
        ),
    ],
    ids=["address", "shape", "buffer", "scale", "count", "one parameter", "batch", "one maximum"],
)
def test_it_is_told_what_it_does(reference: str, candidate: str, case: str, said: str) -> None:
    finding = found(module(reference, candidate, state=TWO), "G11")
    assert finding.verdict == "violation", finding.why
    assert case in finding.why
    assert said in finding.why


def test_a_row_that_rounds_otherwise_among_others_is_right() -> None:
    text = module("return x @ self.weight", "return (self.weight.t() @ x.t()).t()", state=WEIGHT)
    assert found(text, "G11").verdict == "pass"


def test_rows_that_the_reference_mixes_may_be_mixed() -> None:
    text = module("return x - x.mean(0)", "return x - x.sum(0) / len(x)")
    assert found(text, "G11").verdict == "pass"


def test_a_batch_size_that_is_refused_is_a_narrower_domain() -> None:
    body = "if len(x) != 6:\n    raise ValueError('six rows')\nreturn x * 2"
    finding = found(module("return x * 2", body), "G11")
    assert finding.verdict == "reject"
    assert "six rows" in finding.why


def test_weights_kept_in_another_form_are_not_asked_for() -> None:
    state = "self.weight = nn.Parameter(torch.ones(40))\nself.packed = torch.ones(40)"
    text = module("return x * self.weight", "return x * self.packed", state=state)
    assert found(text, "G11").verdict == "violation"
    own = "class ModelNew(Model):\n    def __init__(self):\n        super().__init__()\n        del self.weight\n"
    finding = found(text.replace("class ModelNew(Model):", own), "G11")
    assert finding.verdict == "pass", finding.why
