"""Relations between calls that differ in the rows of a batch: held by a kernel wherever its reference holds them.

Bits decide where the reference's results are float64's: sums are then exact in every order. Elsewhere a product of
matrices may well round a row otherwise among other rows, and the error-ratio rule decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from amk.contracts.gates.cases import (
    Checked,
    Fault,
    Inputs,
    answered,
    mapped,
    nothing_left_to_round,
    same_bits,
    shape_fault,
)
from amk.contracts.gates.error_ratio import granted_dtype
from amk.contracts.gates.kappa import KAPPA, SWEEP, is_meaningful, kappa_of
from amk.contracts.outcomes import Answer, Ask
from amk.contracts.trial import Trial, tensors_of

_STREAM: Final = "relations"

LARGE: Final = 1024.0
"""A thousandth of it, leaked into another row, is as large as that row; a dozen such rows still add up in float16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Which rows of a batch a second call has.

    Attributes
    ----------
    index
        Rows of the first call.
    places
        Inputs that have the batch for their first dimension.
    whole
        All rows are there, so that a result without a batch dimension has to stay what it is.
    """

    batch: int
    index: Tensor
    places: frozenset[int]
    whole: bool

    def inputs(self, inputs: Inputs) -> Inputs:
        """The second call's."""
        return mapped(inputs, lambda place, value: value[self.index] if place in self.places else value)

    def of(self, values: tuple[Tensor, ...]) -> list[Tensor | None]:
        """What follows for the second call's results from the first's; None where nothing does."""
        rows = (value.dim() > 0 and len(value) == self.batch for value in values)
        return [
            value[self.index] if batched else (value if self.whole else None)
            for value, batched in zip(values, rows, strict=True)
        ]


def permuted(trial: Trial, inputs: Inputs) -> Checked:
    """Rows in another order give results in that order."""
    batch = _batch(inputs)
    order = torch.randperm(batch, generator=trial.generator(_STREAM, batch))
    if bool((order == torch.arange(batch)).all()):
        order = order.roll(1)
    return _related(trial, inputs, order)


def sliced(trial: Trial, inputs: Inputs) -> Checked:
    """The first rows alone give the first results."""
    return _related(trial, inputs, torch.arange(_kept(_batch(inputs))))


def beside_large(inputs: Inputs) -> Inputs:
    """Rows behind those that `sliced` keeps are ``LARGE`` times as large: what leaks out of them is seen."""
    batch = _batch(inputs)

    def change(place: int, value: Tensor) -> Tensor:
        if not value.is_floating_point() or not value.dim() or len(value) != batch:
            return value
        factors = torch.where(torch.arange(batch) < _kept(batch), 1.0, LARGE).to(value.dtype)
        return value * factors.view(batch, *[1] * (value.dim() - 1))

    return mapped(inputs, change)


def _kept(batch: int) -> int:
    return max(batch // 2, 1)


def _batch(inputs: Inputs) -> int:
    first = next((value for value in tensors_of(inputs) if value.dim()), None)
    return 0 if first is None else len(first)


def _related(trial: Trial, inputs: Inputs, index: Tensor) -> Checked:
    """Hold the candidate to the first reading of what a row is under which the reference has the relation."""
    batch = _batch(inputs)
    if batch < 2:
        return "open"
    expected, exact = trial.expected(inputs), trial.exact(inputs)
    if not isinstance(expected, Answer) or not isinstance(exact, Answer):
        return "open"
    for places in _readings(inputs, batch):
        rows = _Rows(batch=batch, index=index, places=places, whole=len(index) == batch)
        there = trial.expected(rows.inputs(inputs))
        if isinstance(there, Answer) and (held := _held(trial, rows, expected, exact, there)):
            return _judged(trial, rows, inputs, expected, exact, held)
    return "open"


def _readings(inputs: Inputs, batch: int) -> Iterator[frozenset[int]]:
    """Which inputs are batched: all whose first dimension is as long as the first input's, or that one alone."""
    alike = [place for place, value in enumerate(tensors_of(inputs)) if value.dim() and len(value) == batch]
    yield frozenset(alike)
    if len(alike) > 1:
        yield frozenset(alike[:1])


def _held(trial: Trial, rows: _Rows, expected: Answer, exact: Answer, there: Answer) -> dict[int, bool]:
    """Outputs for which the reference holds the relation: True where exactly; empty where it fails for one of them."""
    held: dict[int, bool] = {}
    triples = zip(rows.of(expected.values), rows.of(exact.values), there.values, strict=True)
    for place, (wanted, true, got) in enumerate(triples):
        if wanted is None or true is None:
            continue
        if wanted.shape != got.shape:
            return {}
        granted = granted_dtype(wanted, trial.dtype)
        if same_bits(wanted, got):
            whole = torch.equal(wanted, true) if not wanted.is_floating_point() else nothing_left_to_round(wanted, true)
            held[place] = whole
        elif is_meaningful(wanted, true, granted) and kappa_of(got, wanted, true, granted) <= KAPPA:
            held[place] = False
        else:
            return {}
    return held


def _judged(
    trial: Trial, rows: _Rows, inputs: Inputs, expected: Answer, exact: Answer, held: dict[int, bool]
) -> Checked:
    """Bits where the reference is exact; else right by the whole sweep wherever one call is right by the rule."""
    first = answered(trial.candidate.ask(Ask(inputs=inputs, repeat=2)))
    second = answered(trial.candidate.ask(Ask(inputs=rows.inputs(inputs))))
    for answer in (first, second):
        if isinstance(answer, Fault):
            return answer
    if not isinstance(first, Answer) or not isinstance(second, Answer):
        return "open"
    if fault := shape_fault(first, expected):
        return fault
    repeats = len(set(first.digests)) == 1
    wanted, settled, true = rows.of(first.values), rows.of(expected.values), rows.of(exact.values)
    checked: Checked = "open"
    for place, exactly in held.items():
        mine, theirs, best, got = wanted[place], settled[place], true[place], second.values[place]
        if mine is None or theirs is None or best is None:
            continue
        if got.shape != mine.shape:
            why = f"output {place} has shape {list(got.shape)} instead of {list(mine.shape)}"
            return Fault(verdict="violation", why=why)
        if exactly and repeats:
            if not same_bits(mine, got):
                return Fault(verdict="violation", why=f"rows of output {place} depend on the rows beside them")
            checked = "agrees"
            continue
        less, more = _needs(trial, (mine, got), theirs, best)
        if less > KAPPA:
            continue
        if more > SWEEP[-1]:
            why = f"rows of output {place} depend on the rows beside them: they err {more:.3g} times the yardstick"
            return Fault(verdict="violation", why=why)
        checked = "agrees"
    return checked


def _needs(trial: Trial, answers: tuple[Tensor, Tensor], theirs: Tensor, exact: Tensor) -> tuple[float, float]:
    """The kappa that the better one and the worse one need; infinite both where the reference is no yardstick."""
    granted = granted_dtype(theirs, trial.dtype)
    if not is_meaningful(theirs, exact, granted):
        return math.inf, math.inf
    less, more = sorted(kappa_of(answer, theirs, exact, granted) for answer in answers)
    return less, more
