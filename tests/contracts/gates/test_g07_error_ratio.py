"""G07: the kappa a kernel needs, in each regime of inputs."""

from __future__ import annotations

import pytest
import torch

from amk.contracts.gates.error_ratio import INFINITE, answers_kappa, granted_dtype, offset_of
from amk.contracts.gates.kappa import KAPPA
from tests.contracts.gates.judged import assert_conforming, assert_violating, found, module

REGIMES = {"nominal", "x1e-3", "x64", "heavy-tailed"}


def test_violating_control() -> None:
    finding = assert_violating("G07")
    assert finding.figures["nominal"] <= KAPPA
    assert finding.figures["offset 10000"] > 1000
    assert finding.figures["kappa"] == max(value for name, value in finding.figures.items() if name != "kappa")
    assert finding.failing is not None
    assert finding.failing.case.startswith("offset 10000")


def test_conforming_control() -> None:
    assert_conforming("G07")


def test_an_approximation_is_not_the_function() -> None:
    text = module("return nn.functional.gelu(x)", "return nn.functional.gelu(x, approximate='tanh')")
    finding = found(text, "G07")
    assert finding.verdict == "violation"
    assert finding.failing is not None
    assert finding.failing.inputs == ("float32[1, 1]",)


def test_every_regime_is_measured_whatever_fails() -> None:
    finding = found(module("return torch.tanh(x)", "return torch.tanh(x) + 1e-3 * (x > 5)"), "G07")
    assert finding.verdict == "violation"
    assert set(finding.figures) == REGIMES | {"offset 10000", "kappa"}
    assert finding.figures["x1e-3"] <= KAPPA < finding.figures["x64"]


def test_another_class_stands_as_a_finite_figure() -> None:
    finding = found(module("return torch.tanh(x)", "return torch.sinh(x) / torch.cosh(x)"), "G07")
    assert finding.verdict == "violation"
    assert finding.figures["x64"] == INFINITE
    assert "finite" in finding.why


def test_sums_in_a_narrow_format_are_seen_where_the_reference_sums_in_a_wide_one() -> None:
    inputs = "[torch.rand(4, 512)]"
    text = module("return x.sum(-1)", "return torch.cumsum(x.bfloat16(), -1)[:, -1].to(x.dtype)", inputs=inputs)
    assert found(text, "G07", dtype="bfloat16").verdict == "pass"
    assert found(text, "G07").verdict == "violation"


def test_a_reference_that_is_off_itself_is_no_yardstick() -> None:
    finding = found(module("return torch.rand_like(x)", "return torch.rand_like(x)"), "G07")
    assert finding.verdict == "not applicable"
    assert not finding.figures


def test_a_refusal_is_a_reject_with_what_was_measured() -> None:
    body = "if float(x.abs().max()) > 60:\n    raise ValueError('too large')\nreturn torch.tanh(x)"
    finding = found(module("return torch.tanh(x)", body), "G07")
    assert finding.verdict == "reject"
    assert "too large" in finding.why
    assert "nominal" in finding.figures


def test_indices_are_judged_by_how_many_differ() -> None:
    right = module("return x.argmax(-1)", "return x.sort(dim=-1, descending=True, stable=True).indices[:, 0]")
    wrong = module("return x.argmax(-1)", "return x[:, :-1].argmax(-1)", inputs="[torch.randn(400, 10)]")
    assert found(right, "G07").verdict == "pass"
    assert found(wrong, "G07").verdict == "violation"


def test_integer_inputs_have_one_regime() -> None:
    inputs = "[torch.randint(9, (5, 7))]"
    finding = found(module("return x.cumsum(-1) / 3", "return x.cumsum(-1) * (1 / 3)", inputs=inputs), "G07")
    assert set(finding.figures) == {"nominal", "kappa"}


@pytest.mark.parametrize(("dtype", "offset"), [(torch.float32, 1e4), (torch.bfloat16, 2.0**4), (torch.float16, 2.0**7)])
def test_the_offset_leaves_narrow_formats_some_bits(dtype: torch.dtype, offset: float) -> None:
    assert offset_of(dtype) == offset
    assert len(torch.unique(torch.linspace(-1, 1, 33).to(dtype) + offset)) >= 16


def test_float64_is_no_yardstick_for_itself() -> None:
    values = (torch.rand(3, dtype=torch.float64),)
    assert granted_dtype(values[0], torch.float32) == torch.float32
    assert granted_dtype(values[0], torch.float64) == torch.float32  # nothing is more exact: this has to do
    near, far = ((values[0] * factor,) for factor in (1 + 1e-9, 1 + 1e-5))
    assert answers_kappa(near, values, values, torch.float64) < 1.0
    assert answers_kappa(far, values, values, torch.float64) > KAPPA
    assert answers_kappa(values, values, values, torch.float32) == 0.0


def test_a_reference_that_errs_little_by_chance_accuses_nobody() -> None:
    # One sum of two hundred numbers, from the front and from the back: for this seed the one errs 28 times as much.
    top = (
        "def total(x):\n    t = x[..., 0]\n    for i in range(1, x.shape[-1]):\n        t = t + x[..., i]\n    return t"
    )
    inputs = "[torch.randn(1, 200, generator=torch.Generator().manual_seed(183))]"
    assert found(module("return total(x)", "return total(x.flip(-1))", top=top, inputs=inputs), "G07").verdict == "pass"
    wrong = module("return total(x)", "return total(x.flip(-1)) * (1 + 1e-4)", top=top, inputs=inputs)
    assert found(wrong, "G07").verdict == "violation"
