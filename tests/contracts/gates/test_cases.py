"""What the gates share: cases, shrinking, comparisons, the record of a failing input."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import safetensors.torch
import torch

from amk.contracts.gates.cases import (
    DATA_BYTES_MAX,
    Case,
    Fault,
    Inputs,
    answered,
    describe,
    failing,
    judge_cases,
    mapped,
    nothing_left_to_round,
    same_bits,
    same_values,
    shape_fault,
    with_tensor,
)
from amk.contracts.outcomes import Died, Raised
from tests.contracts.gates.here import answer_of, trial_of


def is_long(inputs: Inputs) -> Fault | str:
    """A fault of every input of three columns or more."""
    (x,) = inputs
    return Fault(verdict="violation", why="it is long") if x.shape[1] >= 3 else "agrees"


def test_the_first_violation_is_made_as_small_as_it_can_be() -> None:
    cases = [Case(name="as it is"), Case(name="never looked at", make=lambda inputs: pytest.fail("it was made"))]
    finding = judge_cases(trial_of(torch.rand(40, 50)), "G99", cases, is_long, passed="", absent="")
    assert finding.verdict == "violation"
    assert finding.cases == 1
    assert finding.why == "as it is; sizes 40 -> 1, 50 -> 3: it is long"
    assert finding.failing is not None
    assert finding.failing.inputs == ("float32[1, 3]",)


def test_what_does_not_shrink_stays() -> None:
    def check(inputs: Inputs) -> Fault:
        return Fault(verdict="violation", why="it hangs", shrinks=False)

    finding = judge_cases(trial_of(torch.rand(4, 5)), "G99", [Case(name="as it is")], check, passed="", absent="")
    assert finding.failing is not None
    assert finding.failing.inputs == ("float32[4, 5]",)


@pytest.mark.parametrize(
    ("found", "verdict", "cases"),
    [
        (["open", "open"], "not applicable", 0),
        (["open", "agrees"], "pass", 1),
        (["reject", "agrees"], "reject", 2),
        (["reject", "agrees", "violation", "agrees"], "violation", 3),
    ],
)
def test_what_cases_amount_to(found: list[str], verdict: str, cases: int) -> None:
    def check_of(one: str) -> Callable[[Inputs], object]:
        return lambda inputs: one if one in {"open", "agrees"} else Fault(verdict=one, why="", shrinks=False)

    made = [Case(name=one, check=check_of(one)) for one in found]
    finding = judge_cases(trial_of(torch.rand(4, 5)), "G99", made, is_long, passed="all are", absent="none is")
    assert (finding.verdict, finding.cases) == (verdict, cases)
    assert (finding.failing is None) == (verdict in {"pass", "not applicable"})


def test_the_time_limit_is_said() -> None:
    finding = judge_cases(
        trial_of(torch.rand(2, 2), deadline=0.0), "G99", [Case(name="a")], is_long, passed="p", absent="a"
    )
    assert (finding.verdict, finding.why) == ("not applicable", "no time was left")


def test_a_size_that_is_only_broadcast_is_none() -> None:
    trial = trial_of(torch.rand(4, 5), function=lambda x: x + torch.rand(5))
    assert Case(name="", sizes={5: 1}).inputs(trial) is None
    assert Case(name="", sizes={4: 1}).inputs(trial) is not None


def test_a_size_that_costs_too_much_is_none() -> None:
    trial = trial_of(torch.rand(9, 9, 9, 9))
    assert Case(name="", sizes={9: 256}).inputs(trial) is None
    assert Case(name="", sizes={9: 10}).inputs(trial) is not None


def test_tensors_are_replaced_where_they_are() -> None:
    one, two = torch.rand(2), torch.rand(3, requires_grad=True)
    inputs = (one, [{"a": two}, 3], "text")
    changed = mapped(inputs, lambda place, value: value + place)
    assert torch.equal(changed[0], one)
    assert torch.equal(changed[1][0]["a"], two + 1)
    assert changed[1][0]["a"].requires_grad
    assert changed[1][0]["a"].is_leaf
    assert changed[1][1:] == [3]
    assert with_tensor(inputs, 1, one)[1][0]["a"].shape == (2,)
    assert two.shape == (3,)


def test_inputs_are_described_with_what_is_unusual() -> None:
    wide = torch.rand(4, 5)
    assert describe(wide) == "float32[4, 5]"
    assert describe(wide.T) == "float32[5, 4] strides [1, 5]"
    assert describe(wide[1:, 1:]) == "float32[3, 4] strides [5, 1] offset 6"
    assert describe([torch.tensor(2), {"n": 3}, None]) == "[int64[], {n: 3}, None]"


def test_a_failing_input_is_kept_if_it_is_small() -> None:
    base = torch.rand(4, 6)
    kept = failing("case", (base.T, [base[:, 1:]]))
    data = safetensors.torch.load(kept.data)
    assert torch.equal(data["0"], base.T)
    assert torch.equal(data["1"], base[:, 1:])
    assert failing("case", (torch.rand(DATA_BYTES_MAX // 4 + 1),)).data == b""
    assert failing("case", (torch.rand(3, dtype=torch.complex64),)).data == b""
    assert failing("case", (3,)).data == b""


def test_outcomes_that_are_no_answers() -> None:
    refusal = answered(Raised(kind="ValueError", message="no"))
    assert isinstance(refusal, Fault)
    assert (refusal.verdict, refusal.why) == ("reject", "it refuses this by ValueError: no")
    crash, hang = (answered(Died(how=how, detail="")) for how in ("crash", "hang"))
    assert isinstance(crash, Fault)
    assert isinstance(hang, Fault)
    assert (crash.verdict, crash.shrinks, hang.shrinks) == ("violation", True, False)


def test_shapes_have_to_agree() -> None:
    one = torch.rand(2, 3)
    assert shape_fault(answer_of(one), answer_of(one + 1)) is None
    assert "1 tensors, the reference 2" in shape_fault(answer_of(one), answer_of(one, one)).why
    assert "output 1 is float32[3, 2]" in shape_fault(answer_of(one, one.T), answer_of(one, one)).why


def test_bits_and_values() -> None:
    zero, nan = torch.tensor([0.0]), torch.tensor([torch.nan])
    assert same_bits(nan, nan.clone())
    assert not same_bits(zero, -zero)
    assert same_values(zero, -zero)
    assert same_values(nan, nan)
    assert not same_values(zero, zero.double())
    assert not same_values(zero, nan)
    assert same_values(torch.tensor([True]), torch.tensor([True]))


def test_what_has_nothing_left_to_round() -> None:
    whole, third = torch.tensor([3.0, 0.25]), torch.tensor([1.0]) / 3
    assert nothing_left_to_round(whole, whole.double())
    assert not nothing_left_to_round(third, torch.tensor([1.0]).double() / 3)
    exact = torch.tensor([1.0]).double() / 3
    assert not nothing_left_to_round(exact, exact)  # a float64 result is its own float64 run's
    assert not nothing_left_to_round(torch.tensor([torch.inf]), torch.tensor([torch.inf]).double())
    assert not nothing_left_to_round(torch.tensor([3]), torch.tensor([3]))
