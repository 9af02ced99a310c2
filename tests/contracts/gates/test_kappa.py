"""The error-ratio rule on its own: what it grants, and what it never does."""

from __future__ import annotations

import math

import pytest
import torch

from amk.contracts.gates.kappa import KAPPA, SWEEP, is_meaningful, kappa_of, unit_roundoff

EXACT = torch.linspace(-1.0, 1.0, 101, dtype=torch.float64)


def test_unit_roundoff_is_half_a_step_at_one() -> None:
    assert unit_roundoff(torch.float32) == 2.0**-24
    assert unit_roundoff(torch.bfloat16) == 2.0**-8
    assert unit_roundoff(torch.float16) == 2.0**-11
    assert SWEEP[0] <= KAPPA <= SWEEP[-1]


def test_a_rounded_result_needs_no_more_than_one() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        rounded = EXACT.to(dtype)
        assert 0.0 < kappa_of(rounded, rounded, EXACT, dtype) <= 1.0


def test_the_references_own_error_is_the_yardstick_where_it_is_larger() -> None:
    reference = EXACT + 1e-3
    assert kappa_of(EXACT + 3e-3, reference, EXACT, torch.float32) == pytest.approx(3.0)
    assert kappa_of(EXACT + 3e-3, EXACT, EXACT, torch.float32) == pytest.approx(3e-3 * 2**24)


def test_the_root_mean_square_decides_where_the_largest_error_is_the_references() -> None:
    reference = EXACT.clone()
    reference[0] += 1e-2
    candidate = EXACT + 1e-2
    assert kappa_of(candidate, reference, EXACT, torch.float32) == pytest.approx(math.sqrt(101))


def test_zeros_are_held_to_a_subnormal_step() -> None:
    zeros = torch.zeros(4, dtype=torch.float64)
    assert kappa_of(zeros, zeros, zeros, torch.float32) == 0.0
    assert kappa_of(zeros + 2.0**-149, zeros, zeros, torch.float32) == pytest.approx(1.0)
    assert kappa_of(zeros + 1e-30, zeros, zeros, torch.float32) > SWEEP[-1]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_another_class_is_infinitely_wrong(value: float) -> None:
    special = EXACT.clone()
    special[7] = value
    assert kappa_of(EXACT.float(), special.float(), special, torch.float32) == math.inf
    assert kappa_of(special.float(), EXACT.float(), EXACT, torch.float32) == math.inf
    assert kappa_of(special.float(), special.float(), special, torch.float32) <= 1.0


def test_what_the_reference_does_not_settle_is_left_out() -> None:
    exact = torch.tensor([1.0, 70_000.0, 60_000.0], dtype=torch.float64)
    reference = exact.half()  # the second overflows, the third is close to it
    candidate = torch.tensor([1.0, 5.0, math.inf]).half()
    assert kappa_of(candidate, reference, exact, torch.float16) == 0.0


def test_another_shape_is_infinitely_wrong() -> None:
    assert kappa_of(EXACT[:-1], EXACT, EXACT, torch.float32) == math.inf


def test_an_index_may_differ_as_often_as_the_references_does() -> None:
    exact = torch.arange(1000)
    candidate, reference = exact.clone(), exact.clone()
    candidate[:6] += 1
    reference[:2] += 1
    assert kappa_of(candidate, reference, exact, torch.float32) == pytest.approx(3.0)
    assert kappa_of(candidate, exact, exact, torch.float32) > SWEEP[-1]
    assert kappa_of(candidate, exact, exact, torch.bfloat16) < KAPPA


def test_complex_results_are_their_parts() -> None:
    exact = torch.complex(EXACT, EXACT.flip(0))
    reference = exact.to(torch.complex64)
    assert 0.0 < kappa_of(reference, reference, exact, torch.float32) <= 1.0
    assert kappa_of(reference.conj().resolve_conj(), reference, exact, torch.float32) > SWEEP[-1]


def test_huge_errors_do_not_overflow_the_mean() -> None:
    exact = torch.zeros(4, dtype=torch.float64)
    assert math.isfinite(kappa_of(exact + 1e30, exact + 1e30, exact, torch.float32))
    assert math.isfinite(kappa_of(exact + 1e200, exact + 1e200, exact, torch.float64))


def test_a_yardstick_that_would_accept_zeros_is_no_yardstick() -> None:
    assert is_meaningful(EXACT.float(), EXACT, torch.float32)
    assert not is_meaningful(EXACT + 0.2, EXACT, torch.float32)
    assert not is_meaningful(torch.full_like(EXACT, math.nan), EXACT, torch.float32)
    assert not is_meaningful(EXACT[1:], EXACT, torch.float32)
    assert is_meaningful(torch.zeros(0), torch.zeros(0, dtype=torch.float64), torch.float32)
    assert not is_meaningful(torch.arange(10), torch.arange(1, 11), torch.float32)


def test_what_no_number_of_the_dtype_stands_for_is_no_yardstick() -> None:
    noise = torch.full((4,), 1e-16, dtype=torch.float64)
    assert not is_meaningful(torch.zeros(4, dtype=torch.float16), noise, torch.float16)
    assert not is_meaningful(torch.zeros(4), noise, torch.float32)
    assert is_meaningful(noise.float(), noise, torch.float32)
    assert not is_meaningful(torch.zeros(4), torch.zeros(4, dtype=torch.float64), torch.float32)
