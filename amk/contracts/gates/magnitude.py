"""G02: inputs of extreme size or none. What is finite stays so, subnormals are not flushed, a zero keeps its sign."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Final

import torch
from torch import Tensor

from amk.contracts.gates import Gate
from amk.contracts.gates.cases import (
    Case,
    Checked,
    Fault,
    Inputs,
    answered,
    difference,
    floating,
    judge_cases,
    mapped,
    real,
    same_values,
    shape_fault,
)
from amk.contracts.gates.kappa import is_meaningful, settled_mask
from amk.contracts.gates.whole import settled
from amk.contracts.outcomes import Answer, Ask
from amk.contracts.trial import Trial
from amk.contracts.verdicts import Finding

ID: Final = "G02"


def judge(trial: Trial) -> Finding:
    """Large, equal, subnormal and zero values in all floating inputs at once, and in each alone."""
    return judge_cases(
        trial,
        ID,
        cases(trial),
        functools.partial(stays_finite, trial),
        passed="large, equal and zero inputs stay finite, subnormal ones are kept, zeros have their signs",
        absent="no floating input, or the reference and its float64 run agree on none of these",
    )


# --- inputs ----------------------------------------------------------------------------------------------------------


def cases(trial: Trial) -> Iterator[Case]:
    """Each change in one floating input at a time, and where that leaves it settled what comes out, in all at once."""
    places = floating(trial.nominal)
    alone = [[place] for place in places]
    together = [places] if len(places) > 1 else []
    for check, changes in _CHANGES.items():
        for name, change in changes.items():
            for group in alone if check is keeps_signs or change is _all_large else together + alone:
                which = f"input {group[0]}" if len(group) == 1 else "every floating input"
                make = functools.partial(_changed, change, frozenset(group))
                yield Case(name=f"{name} in {which}", make=make, check=functools.partial(check, trial))


def _changed(change: Callable[[Tensor], Tensor], places: frozenset[int], inputs: Inputs) -> Inputs | None:
    return mapped(inputs, lambda place, value: change(value) if place in places else value)


def _large(value: Tensor) -> Tensor:
    return value * min(1e4, _largest(value) / 16)


def _offset(value: Tensor) -> Tensor:
    return value + min(1e4, _largest(value) / 16)


def _one_large(value: Tensor) -> Tensor:
    """One element is near the largest number, the others stay."""
    changed = value.clone(memory_format=torch.contiguous_format)
    if changed.numel():
        changed.view(-1)[-1] = _largest(value) / 16
    return changed


def _all_large(value: Tensor) -> Tensor:
    """So large that the sum of all elements, weighted as inputs usually are, is near the largest number.

    Were they larger, it would hang on the order of a sum whether it overflows on the way.
    """
    return torch.where(value < 0, -1.0, 1.0).to(value.dtype) * (_largest(value) / (16 * max(value.numel(), 1)))


def _ones(value: Tensor) -> Tensor:
    return torch.ones_like(value, memory_format=torch.contiguous_format)


def _largest(value: Tensor) -> float:
    """The largest number; of float64 that of float32, since the float64 run would overflow with it."""
    return min(torch.finfo(value.dtype).max, torch.finfo(torch.float32).max)


def _subnormal(value: Tensor) -> Tensor:
    """Between a quarter of the smallest normal number and that number, in steps over the elements; signs are kept."""
    ramp = torch.linspace(0.25, 0.99, max(value.numel(), 1), dtype=torch.float64)[: value.numel()].view(value.shape)
    sign = torch.where(value < 0, -1.0, 1.0).to(torch.float64)
    return (sign * ramp * torch.finfo(value.dtype).tiny).to(value.dtype)


def _minus_zero(value: Tensor) -> Tensor:
    return torch.full_like(value, -0.0, memory_format=torch.contiguous_format)


def _plus_zero(value: Tensor) -> Tensor:
    return torch.zeros_like(value, memory_format=torch.contiguous_format)


# --- checks ----------------------------------------------------------------------------------------------------------


def stays_finite(trial: Trial, inputs: Inputs) -> Checked:
    """No element is NaN or infinite where the reference and its float64 run are finite."""
    asked = _ask(trial, inputs)
    if not isinstance(asked, tuple):
        return asked
    adjudicated = False
    for index, mine, theirs, true in _floats(*asked):
        if not (is_meaningful(theirs, true, trial.dtype) or same_values(theirs.to(true.dtype), true)):
            continue
        finite = settled_mask(theirs, true, trial.dtype) & theirs.isfinite()
        if (lost := finite & ~mine.isfinite()).any():
            return difference("it is not finite", index, lost, mine, theirs)
        adjudicated |= bool(finite.any())
    return "agrees" if adjudicated else "open"


def keeps_indices(trial: Trial, inputs: Inputs) -> Checked:
    """A whole number, such as a maximum's place, is the reference's where that is right and no rounding decides."""
    asked = _ask(trial, inputs)
    if not isinstance(asked, tuple):
        return asked
    mine, expected, exact = asked
    adjudicated = False
    for index, (got, theirs, true) in enumerate(zip(mine.values, expected.values, exact.values, strict=True)):
        if true.is_floating_point() or true.is_complex():
            continue
        right = theirs == true
        if (differs := right & (settled(trial, inputs, mine, exact)[index] != theirs)).any():
            return difference("it is another whole number", index, differs, got, theirs)
        adjudicated |= bool(right.any())
    return "agrees" if adjudicated else "open"


def keeps_subnormals(trial: Trial, inputs: Inputs) -> Checked:
    """No element is zero where the reference and its float64 run have a subnormal number.

    The smallest of them, in the lower half of the mantissa's bits, are left out: roundings on the way may end at zero.
    """
    asked = _ask(trial, inputs)
    if not isinstance(asked, tuple):
        return asked
    adjudicated = False
    for index, mine, theirs, true in _floats(*asked):
        limits = torch.finfo(theirs.dtype)
        kept = (theirs != 0) & (true.abs() >= limits.tiny * limits.eps**0.5) & (true.abs() < limits.tiny)
        if (flushed := kept & (mine == 0)).any():
            return difference("a subnormal result is flushed to zero", index, flushed, mine, theirs)
        adjudicated |= bool(kept.any())
    return "agrees" if adjudicated else "open"


def keeps_signs(trial: Trial, inputs: Inputs) -> Checked:
    """A zero has the reference's sign where that follows from the function.

    It does where the result is the zero of a few elements, so that it stays one when half of the others move away from
    it, and where its sign is that of the results nearby. IEEE 754 leaves the sign of max(-0, +0) open, and torch's own
    ways to write a ReLU differ in it; that of x, tanh(x) or -x is settled.
    """
    asked = _ask(trial, inputs)
    if not isinstance(asked, tuple):
        return asked
    nearby = _nudged(trial, inputs, halves=())
    beside = [trial.expected(nearby), trial.exact(nearby)]
    beside += [trial.expected(_nudged(trial, inputs, halves=(half,))) for half in (0, 1)]
    answers = [outcome for outcome in beside if isinstance(outcome, Answer)]
    if len(answers) < len(beside):
        return "open"
    adjudicated = False
    for index, mine, theirs, true in _floats(*asked):
        near, near_exact, *halves = (real(answer.values[index]) for answer in answers)
        known = (theirs == 0) & (true == 0) & ((halves[0] == 0) | (halves[1] == 0))
        for other in (true, near, near_exact):
            known &= torch.signbit(other) == torch.signbit(theirs)
        known &= (near != 0) & (near_exact != 0)
        if (wrong := known & (mine == 0) & (torch.signbit(mine) != torch.signbit(theirs))).any():
            return difference("a zero has the other sign", index, wrong, mine, theirs)
        adjudicated |= bool(known.any())
    return "agrees" if adjudicated else "open"


def _nudged(trial: Trial, inputs: Inputs, *, halves: tuple[int, ...]) -> Inputs:
    """Zeros as small normal numbers of the same sign: all, or those in one of two halves drawn at random."""
    generator = trial.generator(ID, "halves")

    def change(place: int, value: Tensor) -> Tensor:
        drawn = torch.randint(0, 2, value.shape, generator=generator)
        if not value.is_floating_point():
            return value
        moves = (value == 0) & torch.tensor([not halves or half in halves for half in (0, 1)])[drawn]
        small = torch.full_like(value, torch.finfo(value.dtype).tiny * 1024, memory_format=torch.contiguous_format)
        return torch.where(moves, torch.copysign(small, value), value)

    return mapped(inputs, change)


def _ask(trial: Trial, inputs: Inputs) -> tuple[Answer, Answer, Answer] | Checked:
    """The candidate's answer, the reference's, and its float64 run's, all of the same shapes."""
    expected, exact = trial.expected(inputs), trial.exact(inputs)
    if not isinstance(expected, Answer) or not isinstance(exact, Answer):
        return "open"
    answer = answered(trial.candidate.ask(Ask(inputs=inputs)))
    if isinstance(answer, Fault):
        return answer
    return shape_fault(answer, expected) or (answer, expected, exact)


def _floats(answer: Answer, expected: Answer, exact: Answer) -> Iterator[tuple[int, Tensor, Tensor, Tensor]]:
    """The floating outputs of all three, with their place."""
    triples = zip(answer.values, expected.values, exact.values, strict=True)
    for index, values in enumerate(triples):
        mine, theirs, true = map(real, values)
        if mine.is_floating_point() and theirs.is_floating_point():
            yield index, mine, theirs, true


_CHANGES: Final[dict[Callable[[Trial, Inputs], Checked], dict[str, Callable[[Tensor], Tensor]]]] = {
    stays_finite: {
        "values times 1e4": _large,
        "values plus 1e4": _offset,
        "one value near the largest number": _one_large,
        "values whose sum is near the largest number": _all_large,
        "zeros": _plus_zero,
        "equal values": _ones,
    },
    keeps_indices: {"values times 1e4": _large},
    keeps_subnormals: {"subnormal values": _subnormal},
    keeps_signs: {"-0": _minus_zero, "+0": _plus_zero},
}

GATE = Gate(
    id=ID,
    name="extreme magnitude",
    tolerance_free=True,
    catches="a softmax without its maximum, a division without its eps, squares that overflow, flushed subnormals",
    judge=judge,
)
