"""The error-ratio rule: a kernel may err a few times as much as its reference does, both held against float64.

No absolute tolerance enters. The yardstick is the reference's own error, or the rounding of the largest result where
the reference happens to err less than that.
"""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor

KAPPA: Final = 8.0
"""A kernel whose error is at most this many times the yardstick conforms."""

SWEEP: Final = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
"""Values of kappa that a report shows the verdicts for."""


def unit_roundoff(dtype: torch.dtype) -> float:
    """The largest relative error of rounding to ``dtype`` once."""
    return float(torch.finfo(dtype).eps) / 2


def kappa_of(candidate: Tensor, reference: Tensor, exact: Tensor, dtype: torch.dtype) -> float:
    """The least kappa with ``err(candidate) <= kappa * max(err(reference), u * scale)``, in the max and the RMS norm.

    ``err`` is the distance from ``exact``, ``u`` the unit roundoff of ``dtype`` and ``scale`` the largest magnitude in
    ``exact``. Elements that the reference does not settle are left out: where its class (finite, NaN, +Inf, -Inf) is
    not that of ``exact``, and where ``exact`` is within a factor of two of overflow. The candidate has to be of the
    same class at all others. For integers and booleans the error is the share of elements that differ.

    Parameters
    ----------
    candidate, reference
        Results of any dtype.
    exact
        The reference's result in float64 (integers stay integers).
    dtype
        The floating dtype whose rounding is granted.

    Returns
    -------
    float
        0 where all agree or nothing is settled; infinity for another shape, or another class somewhere.
    """
    if not candidate.shape == reference.shape == exact.shape:
        return math.inf
    if exact.dtype.is_complex:
        parts = (torch.view_as_real(tensor.to(torch.complex128)) for tensor in (candidate, reference, exact))
        candidate, reference, exact = parts
    if not exact.dtype.is_floating_point:
        return _kappa_of_shares(candidate, reference, exact, dtype)
    settled = settled_mask(reference, exact, dtype)
    if not torch.equal(classes(candidate)[settled], classes(exact)[settled]):
        return math.inf
    finite = settled & torch.isfinite(exact)
    true = exact[finite].double()
    if not true.numel():
        return 0.0
    mine = (candidate[finite].double() - true).abs()
    theirs = (reference[finite].double() - true).abs()
    floor = _floor(float(true.abs().max()), dtype)
    return max(_ratio(norm(mine), max(norm(theirs), floor)) for norm in (_largest, _root_mean_square))


def is_meaningful(reference: Tensor, exact: Tensor, dtype: torch.dtype) -> bool:
    """Whether the reference is right enough to be a yardstick.

    It is not where nothing is settled, nor where ``KAPPA`` times its error reaches half of the largest result: the rule
    would then accept a tensor of zeros. Nor where all results are below the dtype's smallest number, as differences of
    equal numbers are: nothing then says how large an error is.
    """
    if reference.shape != exact.shape:
        return False
    if exact.dtype.is_complex:
        reference, exact = (torch.view_as_real(tensor.to(torch.complex128)) for tensor in (reference, exact))
    if not exact.dtype.is_floating_point:
        differing = float((reference != exact).double().mean()) if exact.numel() else 0.0
        return differing * KAPPA <= 0.5
    settled = settled_mask(reference, exact, dtype)
    if not bool(settled.any()):
        return exact.numel() == 0
    finite = settled & torch.isfinite(exact)
    true = exact[finite].double()
    if not true.numel():
        return True
    scale = float(true.abs().max())
    error = float((reference[finite].double() - true).abs().max())
    return scale >= _subnormal(dtype) and (error <= _floor(scale, dtype) or error * KAPPA <= scale / 2)


def classes(values: Tensor) -> Tensor:
    """0 for finite elements, 1 for NaN, 2 for +Inf, 3 for -Inf; an int8 tensor of the same shape."""
    if not values.dtype.is_floating_point:
        return torch.zeros(values.shape, dtype=torch.int8)
    of = torch.isnan(values).to(torch.int8)
    return of + 2 * torch.isposinf(values).to(torch.int8) + 3 * torch.isneginf(values).to(torch.int8)


def settled_mask(reference: Tensor, exact: Tensor, dtype: torch.dtype) -> Tensor:
    """Where the reference says what class an element has: its own is that of ``exact``, and no overflow is near."""
    near_overflow = torch.isfinite(exact) & (exact.abs() > torch.finfo(dtype).max / 2)
    return (classes(reference) == classes(exact)) & ~near_overflow


def _kappa_of_shares(candidate: Tensor, reference: Tensor, exact: Tensor, dtype: torch.dtype) -> float:
    """As `kappa_of` for results that have no size of error: an index may change where two values are a rounding apart.

    The share of elements so close is of the order of ``u``, which is therefore the floor.
    """
    if not exact.numel():
        return 0.0
    mine = float((candidate != exact).double().mean())
    theirs = float((reference != exact).double().mean())
    return mine / max(theirs, unit_roundoff(dtype))


def _floor(scale: float, dtype: torch.dtype) -> float:
    """One rounding of the largest result; of results below the normal range, one step of the subnormal ones."""
    return max(unit_roundoff(dtype) * scale, _subnormal(dtype))


def _subnormal(dtype: torch.dtype) -> float:
    """The smallest number above zero."""
    limits = torch.finfo(dtype)
    return float(limits.tiny) * float(limits.eps)


def _largest(errors: Tensor) -> float:
    return float(errors.max())


def _root_mean_square(errors: Tensor) -> float:
    largest = float(errors.max())
    return 0.0 if not largest else largest * float((errors / largest).square().mean().sqrt())  # no overflow in squares


def _ratio(error: float, yardstick: float) -> float:
    """``yardstick`` is above zero for every dtype narrower than float64, whose own errors are then zero."""
    return 0.0 if not error else (error / yardstick if yardstick else math.inf)
