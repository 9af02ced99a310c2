"""G01: where NaN and infinities come out."""

from __future__ import annotations

import pytest

from tests.contracts.gates.judged import assert_conforming, assert_violating, found, module


def test_violating_control() -> None:
    finding = assert_violating("G01")
    assert "NaN" in finding.why
    assert finding.failing is not None
    assert finding.failing.inputs == ("float32[1, 1]",)


def test_conforming_control() -> None:
    assert_conforming("G01")


@pytest.mark.parametrize(
    ("reference", "candidate", "said"),
    [
        ("return torch.relu(x)", "return torch.fmax(x, torch.zeros_like(x))", "NaN"),
        ("return x * 2", "return (x * 2).clamp(max=1e30)", "+Inf"),
        ("return x * 2", "return (x * 2).clamp(min=-1e30)", "-Inf"),
        ("return x.amax(-1)", "return x.clamp(min=-3.4e38).amax(-1)", "-Inf at every element"),
        ("return x.sum(-1)", "return x.nan_to_num(0.0).sum(-1)", "NaN"),
        ("return x + 0", "return x.nan_to_num(torch.inf)", "NaN"),
        ("return x + 0, x.sum()", "return x + 0, x.nansum()", "output 1"),
        ("return x.argmax(-1)", "return x.nan_to_num(0.0, torch.inf, -torch.inf).argmax(-1)", "a whole number differs"),
        ("return x > 0.5", "return ~(x <= 0.5)", "a whole number differs"),
    ],
)
def test_a_class_that_differs_is_found(reference: str, candidate: str, said: str) -> None:
    finding = found(module(reference, candidate), "G01")
    assert finding.verdict == "violation"
    assert said in finding.why


def test_the_last_tile_is_looked_at_beyond_the_nominal_size() -> None:
    """The kernel swallows NaN only in the rest behind whole tiles of 32, and at the nominal size there is none."""
    candidate = "whole = x.shape[-1] // 32 * 32\nreturn torch.cat([x[..., :whole], x[..., whole:].nan_to_num(0.0)], -1)"
    finding = found(module("return x + 0", candidate, inputs="[torch.randn(32, 64)]"), "G01")
    assert finding.verdict == "violation"
    assert "64 -> " in finding.why


def test_of_equal_values_any_place_will_do() -> None:
    candidate = "return x.shape[-1] - 1 - x.flip(-1).argmax(-1)"  # the last of equal ones, where torch takes the first
    assert found(module("return x.argmax(-1)", candidate), "G01").verdict == "pass"


def test_each_input_is_looked_at() -> None:
    text = module("return x + y", "return x + y.nan_to_num(0.0)", names="x, y", inputs="[torch.randn(6, 9)] * 2")
    assert "input 1" in found(text, "G01").why


def test_where_the_reference_and_float64_differ_nothing_is_asked() -> None:
    """Squares of 1e30 overflow float32 alone: a kernel that is finite there is none the worse."""
    reference = "return (x * 1e30).square().sum(-1)"
    candidate = "return torch.where(x.isnan().any(-1), torch.nan, torch.full_like(x[..., 0], 7.0))"
    assert found(module(reference, candidate), "G01").verdict == "violation"  # of an infinite input both are sure
    candidate = f"{reference.replace('return', 'y =')}\nreturn torch.where(x.abs().amax(-1) < 1e9, 7.0, y)"
    assert found(module(reference, candidate), "G01").verdict == "pass"


def test_a_refusal_is_a_reject() -> None:
    finding = found(module("return x + 0", "assert x.isfinite().all()\nreturn x + 0"), "G01")
    assert finding.verdict == "reject"
    assert "AssertionError" in finding.why


def test_integers_have_no_classes() -> None:
    text = module("return x + 1", "return 1 + x", inputs="[torch.arange(12)]")
    assert found(text, "G01").verdict == "not applicable"
