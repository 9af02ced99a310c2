"""G05: other strides, other offsets, one result."""

from __future__ import annotations

import pytest
import torch

from amk.contracts.gates.layout import LAYOUTS, whole
from tests.contracts.gates.judged import assert_conforming, assert_violating, found, module

FLAT = "y = torch.as_strided(x, x.shape, x.new_empty(x.shape).stride())"


def test_violating_control() -> None:
    assert "transposed" in assert_violating("G05").why


def test_conforming_control() -> None:
    assert_conforming("G05")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_changes_no_value(layout: str) -> None:
    value = whole((torch.randn(3, 4, 5, 6),))[0]
    assert isinstance(value, torch.Tensor)
    laid = LAYOUTS[layout](value)
    assert laid is not None
    assert laid.shape == value.shape
    if "expanded" not in layout:
        assert torch.equal(laid, value)
    assert not laid.is_contiguous() or laid.storage_offset() == 1


@pytest.mark.parametrize(
    ("candidate", "said"),
    [
        (f"{FLAT}\nreturn y * 2", "transposed"),
        ("return torch.as_strided(x, x.shape, x.stride(), 0) * 2", "offset 1"),
        (f"{FLAT}\nreturn (y if x.stride(-1) == 1 or x.stride(-1) == 0 else x) * 2", "rows of a wider tensor"),
        (f"{FLAT}\nreturn (x if x.stride(-1) == 1 or x.stride(0) == 1 else y) * 2", "every second"),
    ],
)
def test_an_ignored_stride_is_found(candidate: str, said: str) -> None:
    finding = found(module("return x * 2", candidate), "G05")
    assert finding.verdict == "violation"
    assert said in finding.why


@pytest.mark.parametrize("layout", ["stride(0) == 0", "is_contiguous(memory_format=torch.channels_last)"])
def test_layouts_that_few_kernels_meet(layout: str) -> None:
    candidate = f"return x * 2 if x.is_contiguous() or not x.{layout} else x * 3"
    finding = found(module("return x * 2", candidate, inputs="[torch.randn(2, 3, 4, 5)]"), "G05")
    assert finding.verdict == "violation"


def test_results_that_are_rounded_may_follow_the_layout_within_their_error() -> None:
    candidate = "y = x.exp()\nreturn y.sum(-1) if x.is_contiguous() else y.flip(-1).double().sum(-1).float()"
    assert found(module("return x.exp().sum(-1)", candidate), "G05").verdict == "pass"
    candidate = "y = x.exp()\nreturn y.sum(-1) * (1 if x.is_contiguous() else 1.001)"
    assert found(module("return x.exp().sum(-1)", candidate), "G05").verdict == "violation"


@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_other_dtypes(dtype: str) -> None:
    assert found(module("return x.exp()", f"{FLAT}\nreturn y.exp()"), "G05", dtype=dtype).verdict == "violation"
    assert found(module("return x.exp()", "return torch.exp(x)"), "G05", dtype=dtype).verdict == "pass"


def test_a_reference_whose_rounding_follows_the_layout_is_one_all_the_same() -> None:
    inputs = "[torch.randn(4, 12, 32)]"
    inner = (
        "y = x.clamp(-2, 2)\nreturn torch.logsumexp(torch.as_strided(y, y.shape, y.new_empty(y.shape).stride()), -1)"
    )
    reference = "return torch.logsumexp(x.clamp(-2, 2), -1)"
    assert found(module(reference, inner, inputs=inputs), "G05").verdict == "violation"
    assert found(module(reference, f"{reference} * 1.0", inputs=inputs), "G05").verdict == "pass"


def test_truth_values_have_layouts() -> None:
    assert found(module("return x > 0.5", "return ~(x <= 0.5)"), "G05").verdict == "pass"
    assert found(module("return x > 0.5", f"{FLAT}\nreturn y > 0.5"), "G05").verdict == "violation"


def test_an_index_has_a_layout_too() -> None:
    text = module(
        "return table[index]",
        "return table[torch.as_strided(index, index.shape, (index.shape[1], 1))]",
        names="table, index",
        inputs="[torch.randn(9, 4), torch.randint(0, 9, (5, 7))]",
    )
    finding = found(text, "G05")
    assert finding.verdict == "violation"
    assert "input 1" in finding.why


def test_a_result_that_is_exact_by_luck_is_not_held_to_its_bits() -> None:
    """The variance of equal values is 0 in the reference's order of adding; in another it is a rounding's square."""
    reference = "return nn.functional.softplus(x).var(-1, correction=0)"
    candidate = """
    y = torch.logaddexp(x, torch.zeros_like(x))
    return (y - y.mean(-1, keepdim=True)).square().mean(-1)
    """
    finding = found(module(reference, candidate, inputs="[torch.randn(4, 16)]"), "G05")
    assert finding.verdict == "pass", finding.why
