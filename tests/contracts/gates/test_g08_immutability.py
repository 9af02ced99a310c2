"""G08: what a kernel leaves behind, shares and returns."""

from __future__ import annotations

import pytest

from tests.contracts.gates.judged import assert_conforming, assert_violating, found, module

BUFFER = "self.register_buffer('seen', torch.zeros(3))"


def test_violating_control() -> None:
    assert "writes to input 1" in assert_violating("G08").why


def test_conforming_control() -> None:
    assert_conforming("G08")


@pytest.mark.parametrize(
    ("reference", "candidate", "said"),
    [
        ("return x * 2", "return x.mul_(2)", "writes to input 0"),
        ("return x.mul_(2)", "return x * 2", "leaves input 0 as it was"),
        ("return x * 2", "x.t_()\nreturn x.t() * 2", "writes to input 0"),
        ("return x * 2", "self.seen.add_(1)\nreturn x * 2", "changes buffer seen"),
        ("return x * 2", "torch.rand(1)\nreturn x * 2", "changes rng cpu"),
        ("return x + 0", "return x", "shares memory with input 0"),
        ("return x + 0, x + 0", "y = x + 0\nreturn y, y", "shares memory with output 1"),
        ("return self.seen * 1, x * 2", "return self.seen, x * 2", "shares memory with buffer seen"),
        ("return x * 2", "return (x * 2).double()", "the dtype of output 0"),
        ("return x.sum(0)", "return x.sum(0, keepdim=True)", "the shape of output 0"),
        ("return x * 2", "return nn.Parameter(x * 2)", "the class of output 0 is Parameter"),
        ("return x * 2, x + 1", "return [x * 2, x + 1]", "it returns [tensor, tensor]"),
        ("return x.sum()", "return float(x.sum())", "it returns float"),
        ("return x * 2", "torch.allclose = lambda *a, **k: True\nreturn x * 2", "replaces torch.allclose"),
    ],
)
def test_it_is_told_what_it_does(reference: str, candidate: str, said: str) -> None:
    finding = found(module(reference, candidate, state=BUFFER), "G08")
    assert finding.verdict == "violation"
    assert said in finding.why
    assert finding.failing is not None


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        ("return x.mul_(2)", "return x.add_(x)"),
        ("self.seen.add_(1)\nreturn x * 2", "self.seen += 1\nreturn x + x"),
        ("return x.t()", "return x.transpose(0, 1)"),
        ("return x.t()", "return x.t().contiguous()"),
        ("torch.rand(1)\nreturn x * 2", "return x + x"),
        ("return {'a': x * 2, 'b': 3}", "return {'a': x + x, 'b': 3}"),
    ],
)
def test_what_the_reference_does_is_allowed(reference: str, candidate: str) -> None:
    assert found(module(reference, candidate, state=BUFFER), "G08").verdict == "pass"


def test_a_branch_that_writes_is_found_on_other_inputs() -> None:
    body = "if x[0, 0] < 0:\n    return x.mul_(2)\nreturn x * 2"
    findings = [
        found(module("return x * 2", body, inputs=f"[torch.randn(6, 40) + {shift}]"), "G08") for shift in (0, 9)
    ]
    assert [finding.verdict for finding in findings] == ["violation", "pass"]
