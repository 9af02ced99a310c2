"""G02: inputs of extreme size."""

from __future__ import annotations

import pytest

from tests.contracts.gates.judged import assert_conforming, assert_violating, found, module

FLUSH = "torch.where(x.abs() < 1.17549435e-38, torch.zeros_like(x), x)"

SIGNS = "torch.linspace(-1, 1, x.shape[-1])"


def test_violating_control() -> None:
    assert "it is not finite" in assert_violating("G02").why


def test_conforming_control() -> None:
    assert_conforming("G02")


@pytest.mark.parametrize(
    ("reference", "candidate", "said"),
    [
        ("return torch.sigmoid(x)", "return x.exp() / (1 + x.exp())", "not finite"),
        ("return torch.logsumexp(x, -1)", "return x.exp().sum(-1).log()", "not finite"),
        ("return torch.tanh(x)", "y = (2 * x).exp()\nreturn (y - 1) / (y + 1)", "not finite"),
        ("return x / 3", "return x * 1e10 / 3e10", "not finite"),
        ("return x / (x.norm() + 1e-6)", "return x / x.norm()", "zeros in input 0"),
        (
            "return x * (x.var(-1, keepdim=True) + 1e-6).rsqrt()",
            "return x * x.std(-1, keepdim=True) ** -1",
            "not finite",
        ),
        ("return x * 0.5", f"return {FLUSH} * 0.5", "flushed"),
        ("return x + 0", f"return {FLUSH}", "flushed"),
        ("return -x", "return 0 - x", "sign"),
        ("return torch.tanh(x)", "return torch.tanh(x).abs() * torch.where(x < 0, -1, 1)", "sign"),
        ("return x.argmax(-1)", "return x.clamp(-1e4, 1e4).argmax(-1)", "another whole number"),
    ],
)
def test_what_is_lost_is_found(reference: str, candidate: str, said: str) -> None:
    finding = found(module(reference, candidate), "G02")
    assert finding.verdict == "violation"
    assert said in finding.why


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        # IEEE 754 leaves the sign of max(-0, 0) open.
        ("return torch.relu(x)", "return torch.where(x > 0, x, torch.where(x.isnan(), x, 0.0))"),
        ("return torch.relu(x)", "return torch.maximum(torch.zeros_like(x), x)"),
        (f"return (x * {SIGNS}).amax(-1)", f"return (x * {SIGNS}).flip(-1).max(-1).values + 0"),
        # Whether a sum overflows on the way hangs on its order.
        ("return x.sum(-1)", "return x.sort(-1, descending=True).values.sum(-1)"),
        ("return x @ x.T", "return (x.T.flip(0).mT @ x.T.flip(0)).mT"),
        # The reference is wrong itself, and the kernel is better.
        ("y = x.exp()\nreturn y / y.sum(-1, keepdim=True)", "return torch.softmax(x, -1)"),
        ("return x.square().mean(-1).sqrt()", "return torch.hypot(x.square().mean(-1).sqrt(), x[..., 0] * 0)"),
    ],
)
def test_what_is_open_is_not_judged(reference: str, candidate: str) -> None:
    assert found(module(reference, candidate), "G02").verdict == "pass"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_other_dtypes_have_their_own_extremes(dtype: str) -> None:
    text = module("return torch.sigmoid(x)", "return x.exp() / (1 + x.exp())")
    assert found(text, "G02", dtype=dtype).verdict == "violation"
    assert found(module("return torch.sigmoid(x)", "return x.sigmoid()"), "G02", dtype=dtype).verdict == "pass"
