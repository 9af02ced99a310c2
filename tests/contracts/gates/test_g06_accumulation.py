"""G06: sums of integers are exact."""

from __future__ import annotations

import pytest

from tests.contracts.gates.judged import assert_conforming, assert_violating, found, module

TF32 = "short = lambda t: (t.contiguous().view(torch.int32) & -8192).view(torch.float32)"
PAIR = {"names": "x, y", "inputs": "[torch.randn(6, 40), torch.randn(40, 7)]"}
LINEAR = "self.weight = nn.Parameter(torch.randn(7, 40))"
TOTAL = "total = x.new_zeros(x.shape[:-1])\nfor part in x.split(1, -1):\n    total = total + part[..., 0]\nreturn total"


def test_violating_control() -> None:
    assert "not exact" in assert_violating("G06").why


def test_conforming_control() -> None:
    assert_conforming("G06")


@pytest.mark.parametrize(
    "candidate",
    [
        "return x.half().sum(-1).float()",
        "return x.bfloat16().sum(-1).float()",
        "return x.sum(-1).half().float()",
        TOTAL.replace("x.new_zeros(x.shape[:-1])", "x.new_zeros(x.shape[:-1]).half()").replace(
            "return total", "return total.float()"
        ),
        TOTAL.replace("+ part[..., 0]", "+ part[..., 0].bfloat16()"),
    ],
    ids=["half inputs", "bfloat16 inputs", "half result", "half total", "bfloat16 parts"],
)
def test_a_narrow_total_is_found(candidate: str) -> None:
    candidate = candidate.replace("+ part[..., 0]", "+ part[..., 0].half()") if "half()" in candidate else candidate
    assert found(module("return x.sum(-1)", candidate), "G06").verdict == "violation"


@pytest.mark.parametrize(
    "candidate",
    [f"{TF32}\nreturn short(x) @ y", f"{TF32}\nreturn x @ short(y)", "return (x.half() @ y.half()).float()"],
    ids=["left in TF32", "right in TF32", "half"],
)
def test_a_narrow_product_is_found(candidate: str) -> None:
    assert found(module("return x @ y", candidate, **PAIR), "G06").verdict == "violation"


@pytest.mark.parametrize(
    "candidate", [f"{TF32}\nreturn x @ short(self.weight).T", f"{TF32}\nreturn short(x) @ self.weight.T"]
)
def test_parameters_are_filled_too(candidate: str) -> None:
    finding = found(module("return x @ self.weight.T", candidate, state=LINEAR), "G06")
    assert finding.verdict == "violation"


def test_all_of_a_product_can_be_added_up_in_any_order() -> None:
    """Each element of x enters the sum once for each column of y, so that few of them have bits behind the point."""
    candidate = "z = torch.einsum('bik,bkj->bij', x, y)\nreturn sum(part.sum(-1) for part in z.split(5, -1))"
    of = {"names": "x, y", "inputs": "[torch.randn(5, 8, 40), torch.randn(5, 40, 48)]"}
    assert found(module("return torch.bmm(x, y).sum(-1)", candidate, **of), "G06").verdict == "pass"
    candidate = f"{TF32}\nreturn torch.bmm(short(x), y).sum(-1)"
    assert found(module("return torch.bmm(x, y).sum(-1)", candidate, **of), "G06").verdict == "violation"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_narrow_type_is_added_up_in_a_wide_one(dtype: str) -> None:
    assert found(module("return x.sum(-1)", TOTAL), "G06", dtype=dtype).verdict == "violation"
    wide = "return x.float().flip(-1).sum(-1).to(x.dtype)"
    assert found(module("return x.sum(-1)", wide), "G06", dtype=dtype).verdict == "pass"


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        ("return x.mean(-1)", "return x.sum(-1) * (1 / x.shape[-1])"),
        ("return x.sum(-1)", "return x.flip(-1).cumsum(-1)[..., -1]"),
        ("return x.sum(-1) * 0.5", "return (x * 0.5).sum(-1)"),
        ("return torch.relu(x).square().sum(-1)", "y = torch.relu(x)\nreturn (y * y).sum(-1)"),
    ],
)
def test_what_is_as_exact_as_the_reference_passes(reference: str, candidate: str) -> None:
    """A mean over 40 is rounded: nothing is asked of it there; over 256 it is exact."""
    assert found(module(reference, candidate), "G06").verdict == "pass"


@pytest.mark.parametrize("dtype", ["as made", "float64"])
def test_what_is_never_exact_is_not_judged(dtype: str) -> None:
    text = module("return x.exp().sum(-1)", "return (x.exp() * 1.001).sum(-1)")
    assert found(text, "G06", dtype=dtype).verdict == "not applicable"


def test_an_exact_output_beside_one_that_is_not() -> None:
    text = module("return x.exp(), x.sum(-1)", "return x.exp(), x.half().sum(-1).float()")
    finding = found(text, "G06")
    assert finding.verdict == "violation"
    assert "output 1" in finding.why
