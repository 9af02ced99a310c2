"""G04: sizes other than the one that the benchmark has."""

from __future__ import annotations

import pytest

from tests.contracts.gates.judged import assert_conforming, assert_violating, found, module

INPUTS = "[torch.randn(8, 32)]"


def test_violating_control() -> None:
    assert_violating("G04")


def test_conforming_control() -> None:
    assert_conforming("G04")


@pytest.mark.parametrize(
    ("reference", "candidate", "said"),
    [
        ("return x * 2", "return torch.cat([x[:8] * 2, x[8:] * 0])", "its error"),
        ("return x.mean(-1)", "return x.sum(-1) / 32", "its error"),
        ("return x * 2", "return x[:, : x.shape[1] // 4 * 4] * 2", "output 0 is float32"),
        ("return x * 2", "return x.double() * 2 if len(x) == 1 else x * 2", "output 0 is float64"),
        ("return x * 2", "return x * 2 if x.numel() else torch.zeros(1)", "-> 0"),
        ("return x.sum(-1)", "return x.sum(-1) if x.shape[-1] > 1 else x.sum(-1) * 0", "-> 1"),
        ("return x * 2", "import os\nreturn x * 2 if len(x) < 64 else os._exit(3)", "did not live"),
    ],
)
def test_a_size_that_goes_wrong_is_found(reference: str, candidate: str, said: str) -> None:
    finding = found(module(reference, candidate, inputs=INPUTS), "G04")
    assert finding.verdict == "violation"
    assert said in finding.why


def test_a_refused_size_is_a_narrower_domain() -> None:
    candidate = "assert x.shape[1] % 32 == 0, 'a multiple of 32 is needed'\nreturn x * 2"
    finding = found(module("return x * 2", candidate, inputs=INPUTS), "G04")
    assert finding.verdict == "reject"
    assert "a multiple of 32" in finding.why


def test_a_violation_outranks_a_refusal() -> None:
    candidate = "assert x.shape[1] % 32 == 0\nreturn torch.cat([x[:8] * 2, x[8:] * 0])"
    assert found(module("return x * 2", candidate, inputs=INPUTS), "G04").verdict == "violation"


def test_a_size_that_is_a_parameters_stays() -> None:
    """The reference would broadcast one column to 32; that is no size of the kernel's."""
    text = module(
        "return x + self.bias",
        "return torch.add(x, self.bias).view(x.shape)",
        inputs=INPUTS,
        state="self.bias = nn.Parameter(torch.randn(32))",
    )
    assert found(text, "G04").verdict == "pass"


def test_a_reference_of_one_size_asks_for_nothing() -> None:
    fixed = "assert x.shape == (8, 32)\nreturn x * 2"
    assert found(module(fixed, "return x + x", inputs=INPUTS), "G04").verdict == "not applicable"


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_an_index_may_change_where_two_values_are_a_rounding_apart(dtype: str) -> None:
    """Of a product in a narrow type many are; one that is off everywhere is none of them."""
    reference = "return (x @ x.T).argmax(-1)"
    other_order = "return (x.flip(1).float() @ x.flip(1).T.float()).to(x.dtype).argmax(-1)"
    inputs = "[torch.rand(40, 24)]"
    assert found(module(reference, other_order, inputs=inputs), "G04", dtype=dtype).verdict == "pass"
    off_by_one = "return (x @ x.T)[:, 1:].argmax(-1) + 1"
    assert found(module(reference, off_by_one, inputs=inputs), "G04", dtype=dtype).verdict == "violation"
