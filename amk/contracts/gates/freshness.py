"""G11: an answer is that of this call: of these inputs, these parameters, and of each row by itself where it is so."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from amk.contracts.gates import Gate
from amk.contracts.gates.cases import Case, Checked, Fault, Inputs, answered, judge_cases, mapped, shape_fault
from amk.contracts.gates.error_ratio import answers_kappa
from amk.contracts.gates.kappa import KAPPA, SWEEP
from amk.contracts.gates.layout import whole
from amk.contracts.gates.relations import beside_large, permuted, sliced
from amk.contracts.outcomes import Answer, Ask, Outcome
from amk.contracts.trial import Subject, Trial
from amk.contracts.verdicts import Finding

ID: Final = "G11"

UNLIKE: Final = 1e-2
"""Two results of the reference are unlike if they differ by this share of the larger: no rounding does that."""

WEIGHTS_MAX: Final = 8


def judge(trial: Trial) -> Finding:
    """Calls in turn, storages and parameters written in place, and relations between rows of a batch."""
    return judge_cases(
        trial,
        ID,
        cases(trial),
        functools.partial(in_turn, trial),
        passed="answers follow the inputs and the parameters of their call, and the reference's relations between rows",
        absent="the reference does not answer",
    )


def cases(trial: Trial) -> Iterator[Case]:
    """Each procedure as a case; of many parameters the first and the last ones alone, then all at once."""
    yield Case(name="x1, x2, x1, x2", check=functools.partial(in_turn, trial))
    yield Case(name="inputs overwritten in place", check=functools.partial(overwritten, trial))
    names = list(trial.weights)
    half = WEIGHTS_MAX // 2
    for name in names if len(names) <= WEIGHTS_MAX else (*names[:half], *names[-half:]):
        yield Case(name=f"parameter {name} changed in place", check=functools.partial(reweighted, trial, (name,)))
    if len(names) > WEIGHTS_MAX:
        yield Case(name="all parameters changed in place", check=functools.partial(reweighted, trial, tuple(names)))
    for relation, check in {"permuted": permuted, "sliced": sliced}.items():
        yield Case(name=f"batch {relation}", check=functools.partial(check, trial))
        yield Case(name=f"batch of integers {relation}", make=whole, check=functools.partial(check, trial))
    yield Case(name="batch with large rows sliced", make=beside_large, check=functools.partial(sliced, trial))


# --- inputs ----------------------------------------------------------------------------------------------------------


def settled(inputs: Inputs) -> Inputs:
    """Every tensor contiguous, in a storage of its own."""
    return mapped(inputs, lambda place, value: value.clone(memory_format=torch.contiguous_format))


def others(trial: Trial, inputs: Inputs) -> Inputs:
    """Inputs of the same shapes: each tensor's elements in another order, floating ones three quarters as large."""

    def one(place: int, value: Tensor) -> Tensor:
        order = torch.randperm(value.numel(), generator=trial.generator(ID, "others", place))
        moved = value.reshape(-1)[order].view(value.shape)
        return moved * 0.75 if value.is_floating_point() else moved

    return mapped(inputs, one)


# --- calls in turn ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """What both kernels said to one call, and what float64 says, if anything."""

    mine: Answer
    theirs: Answer
    exact: Outcome

    def kappa(self, dtype: torch.dtype) -> float | None:
        """The kappa that the candidate needs here; None where there is no yardstick."""
        if not isinstance(self.exact, Answer):
            return None
        return answers_kappa(self.mine.values, self.theirs.values, self.exact.values, dtype)


def in_turn(trial: Trial, inputs: Inputs) -> Checked:
    """Whatever was asked in between, one input has one answer, and the answers that were given before stay."""
    first = settled(inputs)
    second = others(trial, first)
    steps = _steps(trial, [Ask(inputs=each, repeat=2) for each in (first, second, first, second)])
    if not isinstance(steps, list):
        return steps
    return late_fault(steps) or stale_fault(trial, steps[0], steps[1]) or _again(steps[::2]) or _again(steps[1::2])


def overwritten(trial: Trial, inputs: Inputs) -> Checked:
    """Other values in the very storages of the call before give what they give in fresh ones."""
    first = settled(inputs)
    second = others(trial, first)
    asks = [Ask(inputs=second, repeat=2), Ask(inputs=first), Ask(inputs=second, reuse=True)]
    steps = _steps(trial, asks)
    if not isinstance(steps, list):
        return steps
    fresh, before, reused = steps
    return stale_fault(trial, before, reused) or _again([fresh, reused])


def reweighted(trial: Trial, names: Sequence[str], inputs: Inputs) -> Checked:
    """Parameters written in place are read anew; behind the call they are what they were, and so is the answer."""
    new = {name: _reweighted(trial.weights[name]) for name in names}
    asks = [Ask(inputs=inputs, repeat=2), Ask(inputs=inputs, state=new), Ask(inputs=inputs)]
    steps = _steps(trial, asks)
    if not isinstance(steps, list):
        return steps
    before, changed, after = steps
    return stale_fault(trial, before, changed) or _again([before, after])


def _reweighted(value: Tensor) -> Tensor:
    """Another value for a parameter: zeros change too, and what has to be positive stays so."""
    return value * 0.75 + 0.125 if value.is_floating_point() else value


def _steps(trial: Trial, asks: Sequence[Ask]) -> list[_Step] | Checked:
    """Both kernels' answers to ``asks``, in turn; ``open`` where the reference fails, the fault where the candidate."""
    theirs = _answers(trial.reference, asks)
    if isinstance(theirs, Fault):
        return "open"
    mine = _answers(trial.candidate, asks)
    if isinstance(mine, Fault):
        return mine
    steps = []
    for ask, answer, expected in zip(asks, mine, theirs, strict=True):
        if fault := shape_fault(answer, expected):
            return fault
        steps.append(_Step(mine=answer, theirs=expected, exact=_exact(trial, ask)))
    return steps


def _answers(subject: Subject, asks: Sequence[Ask]) -> list[Answer] | Fault:
    answers = []
    for ask in asks:
        answer = answered(subject.ask(ask))
        if isinstance(answer, Fault):
            return answer
        answers.append(answer)
    return answers


def _exact(trial: Trial, ask: Ask) -> Outcome:
    """The float64 run that belongs to ``ask``."""
    if ask.state is None:
        return trial.exact(ask.inputs)
    return trial.reference.ask(Ask(inputs=ask.inputs, dtype=torch.float64, state=ask.state))


# --- what can be wrong -----------------------------------------------------------------------------------------------


def late_fault(steps: Sequence[_Step]) -> Fault | None:
    """A fault where a later call, or time, has changed an answer that was given."""
    for step in steps:
        if changed := [name for name in step.mine.late_change if name not in step.theirs.late_change]:
            return Fault(verdict="violation", why=f"what a call had returned changed later: {', '.join(changed)}")
    return None


def stale_fault(trial: Trial, before: _Step, after: _Step) -> Fault | None:
    """A fault where the answer did not follow a change that the reference's followed.

    It is the very answer of before; or it was right by the error-ratio rule and is off by the whole sweep of it.
    """
    if before.mine.digests[0] == after.mine.digests[0] and _unlike(before.theirs, after.theirs):
        return Fault(verdict="violation", why="the answer is that of before the change, the reference's is another")
    was, needed = before.kappa(trial.dtype), after.kappa(trial.dtype)
    if was is not None and needed is not None and was <= KAPPA and needed > SWEEP[-1]:
        why = f"behind the change its error is {needed:.3g} times the yardstick, before it was {was:.3g} times"
        return Fault(verdict="violation", why=why)
    return None


def _again(steps: Sequence[_Step]) -> Checked:
    """``agrees`` where the same question had the same bits for an answer, or need not have: the reference's vary."""
    first, last = steps
    if first.theirs.digests[0] != last.theirs.digests[0] or len(set(first.mine.digests)) > 1:
        return "agrees"
    if first.mine.digests[0] == last.mine.digests[0]:
        return "agrees"
    return Fault(verdict="violation", why="the same question has another answer the second time")


def _unlike(first: Answer, second: Answer) -> bool:
    """Whether two answers of the reference can be told apart beyond rounding."""
    for a, b in zip(first.values, second.values, strict=True):
        scale = max((float(x.double().abs().nan_to_num(0, 0, 0).max()) for x in (a, b) if x.numel()), default=0.0)
        if not torch.allclose(a.double(), b.double(), rtol=0, atol=UNLIKE * scale, equal_nan=True):
            return True
    return False


GATE = Gate(
    id=ID,
    name="freshness and metamorphic",
    tolerance_free=True,
    catches="results cached by address or by shape, weights packed once, constants, rows that depend on one another",
    judge=judge,
)
