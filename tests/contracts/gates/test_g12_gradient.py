"""G12: the status of results, their gradients, and the slopes that these should be."""

from __future__ import annotations

import torch

from amk.contracts.gates.gradient import SLACK
from amk.contracts.gates.kappa import KAPPA
from amk.contracts.gates.kinks import steady
from tests.contracts.gates.judged import assert_conforming, assert_violating, found, module

FUNCTION = """
class Function(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return torch.tanh(x)

    @staticmethod
    def backward(context, slope):
        (x,) = context.saved_tensors
        return {backward}
"""
LINEAR = "self.weight = nn.Parameter(torch.randn(40, 5))\nself.bias = nn.Parameter(torch.randn(5))"


def custom(backward: str) -> str:
    return module("return torch.tanh(x)", "return Function.apply(x)", top=FUNCTION.format(backward=backward))


def test_violating_control() -> None:
    assert "asks for no gradient" in assert_violating("G12").why


def test_conforming_control() -> None:
    assert_conforming("G12")


def test_a_right_backward_passes_by_value_and_by_slope() -> None:
    finding = found(custom("slope * (1 - torch.tanh(x) ** 2)"), "G12")
    assert finding.verdict == "pass", finding.why
    assert 0 < finding.figures["kappa"] <= KAPPA
    assert finding.figures["central difference"] < SLACK


def test_another_formula_is_wrong_by_value() -> None:
    finding = found(custom("slope * (1 - x ** 2)"), "G12")
    assert finding.verdict == "violation"
    assert "gradient of input 0" in finding.why
    assert finding.figures["kappa"] > KAPPA


def test_a_backward_in_float32_is_no_slope_in_float64() -> None:
    # The values in float32 are right; what is lost shows in float64 alone.
    finding = found(
        custom("slope * (1 - torch.tanh(x.bfloat16().to(x.dtype) if x.dtype == torch.float64 else x) ** 2)"), "G12"
    )
    assert finding.verdict == "violation"
    assert "off the slope" in finding.why


def test_a_kernel_that_has_no_float64_is_judged_by_value() -> None:
    top = FUNCTION.format(backward="slope * (1 - torch.tanh(x) ** 2)")
    body = "if x.dtype != torch.float32:\n    raise TypeError('float32 only')\nreturn Function.apply(x)"
    finding = found(module("return torch.tanh(x)", body, top=top), "G12")
    assert finding.verdict == "pass", finding.why
    assert "central difference" not in finding.figures


def test_a_parameter_that_no_gradient_reaches() -> None:
    text = module("return x @ self.weight + self.bias", "return x @ self.weight.data + self.bias", state=LINEAR)
    finding = found(text, "G12")
    assert finding.verdict == "violation"
    assert "no gradient reaches parameter weight" in finding.why


def test_gradients_summed_in_a_narrow_format() -> None:
    top = """
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(context, x, weight):
            context.save_for_backward(x, weight)
            return x * weight

        @staticmethod
        def backward(context, slope):
            x, weight = context.saved_tensors
            return slope * weight, (slope * x).bfloat16().sum(0).to(x.dtype)
    """
    state = "self.weight = nn.Parameter(torch.randn(40))"
    text = module("return x * self.weight", "return Function.apply(x, self.weight)", top=top, state=state)
    finding = found(text, "G12")
    assert finding.verdict == "violation"
    assert "gradient of parameter weight" in finding.why


def test_a_result_that_asks_for_a_gradient_where_the_references_does_not() -> None:
    finding = found(module("return (x * 2).detach(), x * 3", "return x * 2, x * 3"), "G12")
    assert finding.verdict == "violation"
    assert "output 0 asks for a gradient" in finding.why


def test_without_a_gradient_there_is_nothing_to_judge() -> None:
    inputs = "[torch.randint(9, (5, 7))]"
    assert found(module("return x * 2", "return x + x", inputs=inputs), "G12").verdict == "not applicable"


def test_parameters_alone_have_gradients_too() -> None:
    state = "self.weight = nn.Parameter(torch.randn(9, 4))"
    inputs = "[torch.randint(9, (5, 7))]"
    reference = "return nn.functional.embedding(x, self.weight)"
    right = module(reference, "return self.weight[x]", inputs=inputs, state=state)
    wrong = module(reference, "return self.weight.data[x]", inputs=inputs, state=state)
    assert found(right, "G12").verdict == "pass"
    assert found(wrong, "G12").verdict == "violation"


def test_an_input_changed_in_place_cannot_have_a_gradient() -> None:
    finding = found(module("return x * 2", "return x.mul_(2)"), "G12")
    assert finding.verdict == "reject"
    assert "in-place" in finding.why


def test_at_a_kink_either_side_is_right() -> None:
    inputs = "[torch.randint(-2, 3, (6, 40)).float()]"
    relu = module("return torch.relu(x)", "return torch.where(x >= 0, x, 0 * x)", inputs=inputs)
    ties = module("return x.max(-1).values", "return x.amax(-1)", inputs=inputs)
    wrong = module("return torch.relu(x)", "return torch.relu(x) * 0.5 + 0.5 * torch.relu(x).detach()", inputs=inputs)
    assert [found(text, "G12").verdict for text in (relu, ties, wrong)] == ["pass", "pass", "violation"]


def test_steps_tell_kinks_from_slopes() -> None:
    exact = torch.tensor([1.0, -2.0, torch.nan], dtype=torch.float64)
    beside = [exact.clone(), exact + torch.tensor([1e-9, 0.5, 0.0])]
    assert steady(exact, beside, torch.float32).tolist() == [True, False, True]
