"""G07: a kernel errs at most a few times as much as its reference, against float64 and at every scale of inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import torch
from torch import Tensor

from amk.contracts.gates import Gate
from amk.contracts.gates.cases import (
    Case,
    Checked,
    Fault,
    Inputs,
    answered,
    fault_finding,
    finding,
    floating,
    mapped,
    shape_fault,
    shrink,
)
from amk.contracts.gates.kappa import KAPPA, is_meaningful, kappa_of, unit_roundoff
from amk.contracts.gates.whole import settled
from amk.contracts.outcomes import Answer, Ask, Outcome
from amk.contracts.trial import Trial
from amk.contracts.verdicts import Finding

ID: Final = "G07"

INFINITE: Final = 1e9
"""Stands for an infinite kappa among the figures of a finding: JSON has no infinity."""

REDRAWS: Final = 7

_OFFSET: Final = 1e4
_HEAVY_SIGMA: Final = 1.5
_HEAVY_CAP: Final = 4.0


def judge(trial: Trial) -> Finding:
    """The kappa that the candidate needs in each regime of inputs, all of them, and whether it is granted."""
    figures: dict[str, float] = {}
    faults: list[tuple[Case, Inputs, Fault]] = []
    skipped = ""
    for case in regimes(trial):
        if not trial.still_running():
            skipped = "; the time limit left further regimes out"
            break
        inputs = case.inputs(trial)
        needed = None if inputs is None else needed_kappa(trial, inputs)
        if inputs is None or needed is None:
            continue
        if isinstance(needed, Fault):
            faults.append((case, inputs, needed))
            continue
        figures[case.name] = min(needed, INFINITE)
        if needed > KAPPA:
            faults.append((case, inputs, _too_large(needed)))
    measured = figures | ({"kappa": max(figures.values())} if figures else {})
    cases = len(figures) + sum(case.name not in figures for case, _, _ in faults)
    faults.sort(key=lambda found: found[2].verdict == "reject")  # a violation says more than a refusal
    if faults:
        case, inputs, fault = shrink(trial, *faults[0], lambda inputs: check(trial, inputs))
        return fault_finding(trial, ID, case.title, inputs, fault, cases=cases, figures=measured)
    if not figures:
        why = "no regime in which the reference is right enough to be a yardstick"
        return finding(trial, ID, "not applicable", why)
    why = f"its error is at most {KAPPA:g} times the yardstick, over {', '.join(figures)}{skipped}"
    return finding(trial, ID, "pass", why, cases=cases, figures=measured)


def check(trial: Trial, inputs: Inputs) -> Checked:
    """The rule at ``KAPPA``."""
    needed = needed_kappa(trial, inputs)
    if needed is None:
        return "open"
    if isinstance(needed, Fault):
        return needed
    return _too_large(needed) if needed > KAPPA else "agrees"


def needed_kappa(trial: Trial, inputs: Inputs) -> float | Fault | None:
    """The least kappa at which the candidate conforms on ``inputs``; None where the reference is no yardstick there.

    A reference may err little by chance where there are few results. What is too much on ``inputs`` is therefore looked
    at once more together with the same elements in other orders.
    """
    single = _three(trial, inputs)
    if single is None or isinstance(single, Fault):
        return single
    needed = answers_kappa(*single, trial.dtype)
    if needed is None or needed <= KAPPA or math.isinf(needed):
        return needed
    drawn = [single]
    for draw in range(REDRAWS):
        again = _three(trial, _shuffled(trial, inputs, draw))
        if isinstance(again, tuple) and _alike(again, single):
            drawn.append(again)
    mine, theirs, exact = (
        tuple(torch.stack(same) for same in zip(*side, strict=True)) for side in zip(*drawn, strict=True)
    )
    return answers_kappa(mine, theirs, exact, trial.dtype)


_Three: TypeAlias = tuple[tuple[Tensor, ...], tuple[Tensor, ...], tuple[Tensor, ...]]


def _three(trial: Trial, inputs: Inputs) -> _Three | Fault | None:
    """What the candidate, the reference and its float64 run return."""
    expected, exact = yardstick(trial, inputs), trial.exact(inputs)
    if not isinstance(expected, Answer) or not isinstance(exact, Answer):
        return None
    answer = answered(trial.candidate.ask(Ask(inputs=inputs)))
    if isinstance(answer, Fault):
        return answer
    if fault := shape_fault(answer, expected):
        return fault
    return settled(trial, inputs, answer, exact), expected.values, exact.values


def yardstick(trial: Trial, inputs: Inputs) -> Outcome:
    """The reference's answer, whose error is the measure; of a float64 trial, as that has none, its float32 run's."""
    if (dtype := measured_in(trial.dtype)) is None:
        return trial.expected(inputs)
    return trial.reference.ask(Ask(inputs=inputs, dtype=dtype))


def measured_in(dtype: torch.dtype) -> torch.dtype | None:
    """What the reference is run in to have an error: None, its own, of all but float64."""
    return torch.float32 if dtype == torch.float64 else None


def _alike(one: _Three, other: _Three) -> bool:
    """Whether all tensors have the shapes and the dtypes of the other's."""
    return all(
        [(value.shape, value.dtype) for value in mine] == [(value.shape, value.dtype) for value in theirs]
        for mine, theirs in zip(one, other, strict=True)
    )


def _shuffled(trial: Trial, inputs: Inputs, draw: int) -> Inputs:
    """The elements of each tensor in another order."""

    def one(place: int, value: Tensor) -> Tensor:
        generator = trial.generator(ID, "shuffled", draw, place)
        return value.reshape(-1)[torch.randperm(value.numel(), generator=generator)].view(value.shape)

    return mapped(inputs, one)


def answers_kappa(
    candidate: tuple[Tensor, ...], reference: tuple[Tensor, ...], exact: tuple[Tensor, ...], dtype: torch.dtype
) -> float | None:
    """The kappa that the worst of several tensors needs; None where the reference settles none of them.

    Parameters
    ----------
    dtype
        Of the trial: granted to integers, and to results in float64.
    """
    needed: float | None = None
    for mine, theirs, true in zip(candidate, reference, exact, strict=True):
        granted = granted_dtype(theirs, dtype)
        if not is_meaningful(theirs, true, granted):
            continue
        needed = max(needed or 0.0, kappa_of(mine, theirs, true, granted))
    return needed


def granted_dtype(reference: Tensor, dtype: torch.dtype) -> torch.dtype:
    """The dtype whose rounding is granted to a result: its own, or that of the trial.

    Where both are float64 nothing is more exact than the result itself, and the rounding of float32 is granted.
    """
    of = reference.dtype
    if of.is_complex:
        of = of.to_real()
    granted = dtype if not of.is_floating_point or of == torch.float64 else of
    return torch.float32 if granted == torch.float64 else granted


def _too_large(needed: float) -> Fault:
    if math.isinf(needed):
        return Fault(verdict="violation", why="it is finite where the reference is not, or the other way round")
    why = f"its error is {needed:.3g} times the larger of the reference's and one rounding; {KAPPA:g} are granted"
    return Fault(verdict="violation", why=why)


# --- regimes ---------------------------------------------------------------------------------------------------------


def regimes(trial: Trial) -> Iterator[Case]:
    """Nominal inputs, and where there are floating ones four changes of their scale."""
    yield Case(name="nominal")
    if not floating(trial.nominal):
        return
    offset = offset_of(trial.dtype)
    yield _regime("x1e-3", lambda value, place: value * 1e-3)
    yield _regime("x64", lambda value, place: value * 64)
    yield _regime(f"offset {offset:g}", lambda value, place: value + offset)
    yield _regime("heavy-tailed", lambda value, place: value * heavy_tails(trial, value, place))


def offset_of(dtype: torch.dtype) -> float:
    """1e4, or as much as leaves values around 1 four bits of their own beside it."""
    return min(_OFFSET, 2.0**-4 / unit_roundoff(dtype))


def heavy_tails(trial: Trial, value: Tensor, place: int) -> Tensor:
    """Log-normal factors: signs and zeros stay, most values too, a few are hundreds of times as large."""
    normal = torch.randn(value.shape, generator=trial.generator(ID, "heavy-tailed", place), dtype=torch.float64)
    return (_HEAVY_SIGMA * normal.clamp(max=_HEAVY_CAP)).exp()


def _regime(name: str, change: Callable[[Tensor, int], Tensor]) -> Case:
    """A case that changes every floating input, in float64; values that would overflow by it stop at the largest."""

    def one(place: int, value: Tensor) -> Tensor:
        if not value.is_floating_point():
            return value
        limit = torch.finfo(value.dtype).max
        changed = change(value.double(), place)
        return torch.where(value.isfinite(), changed.clamp(-limit, limit), value.double()).to(value.dtype)

    return Case(name=name, make=lambda inputs: mapped(inputs, one))


GATE = Gate(
    id=ID,
    name="float64 error ratio",
    tolerance_free=False,
    catches="a variance in one pass, an approximation in the place of a function, sums in a narrow format",
    judge=judge,
)
