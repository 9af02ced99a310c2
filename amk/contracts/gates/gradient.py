"""G12: results ask for a gradient where the reference's do, and what comes back is right by the error-ratio rule."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
import torch
from torch import Tensor

from amk.contracts.gates import Gate
from amk.contracts.gates.cases import Case, Checked, Fault, Inputs, answered, judge_cases, mapped, shape_fault
from amk.contracts.gates.difference import slope_error
from amk.contracts.gates.error_ratio import INFINITE, answers_kappa, granted_dtype, measured_in
from amk.contracts.gates.kappa import KAPPA
from amk.contracts.gates.kinks import nearby, roundings_away, steady
from amk.contracts.outcomes import Answer, Ask
from amk.contracts.trial import Subject, Trial, tensors_of
from amk.contracts.verdicts import Finding

ID: Final = "G12"

SLACK: Final = 1e-6
"""The relative error of a central difference in float64 that is granted where the reference's is smaller. A gradient
that passes through float32 is off by its unit roundoff or less, one by another formula by far more."""

SLACK_MAX: Final = 1e-2
"""Where the reference's own central difference is off by more, its function has a kink there, or is random."""


def judge(trial: Trial) -> Finding:
    """Status, then gradients of two draws, then central differences where the candidate computes in float64."""
    figures: dict[str, float] = {}
    found = judge_cases(
        trial,
        ID,
        _cases(trial, figures),
        functools.partial(status, trial),
        passed="results ask for gradients as the reference's do",
        absent="nothing that the reference returns asks for a gradient",
    )
    gradients = [value for name, value in figures.items() if name != _DIFFERENCE]
    measured = figures | ({"kappa": max(gradients)} if gradients else {})
    why = found.why
    if found.verdict == "pass" and gradients:
        why += f"; gradients need kappa {max(gradients):.2g} of {KAPPA:g} granted"
    if found.verdict == "pass" and _DIFFERENCE in figures:
        why += "; they are the slopes that central differences in float64 find"
    return msgspec.structs.replace(found, why=why, figures=measured)


_DIFFERENCE: Final = "central difference"

_RECORD: Final = ()
"""Cotangents of no output: the call records a graph, and nothing is run backward."""


def _cases(trial: Trial, figures: dict[str, float]) -> Iterator[Case]:
    yield Case(name="nominal", check=functools.partial(status, trial))
    yield Case(name="inputs that ask for a gradient", make=asking, check=functools.partial(status, trial))
    # At other scales than the nominal one too many functions are flat, or are differences of all but equal numbers.
    draws: dict[str, Callable[[Inputs], Inputs]] = {
        "nominal": asking,
        "drawn anew": functools.partial(_drawn_anew, trial),
    }
    for name, make in draws.items():
        yield Case(name=f"gradient, {name}", make=make, check=functools.partial(values, trial, figures, name))
    yield Case(name=_DIFFERENCE, make=asking, check=functools.partial(slopes, trial, figures))


def asking(inputs: Inputs) -> Inputs:
    """Copies of the inputs, of which all that may ask for a gradient do."""
    copies = mapped(inputs, lambda place, value: value.clone())
    for tensor in tensors_of(copies):
        tensor.requires_grad_(tensor.is_floating_point() or tensor.is_complex())
    return copies


def _drawn_anew(trial: Trial, inputs: Inputs) -> Inputs:
    """Other values of the working size; at another size the ones that are given."""
    seed = int(torch.randint(1 << 31, (), generator=trial.generator(ID)))
    return asking(trial.inputs(seed) if inputs is trial.nominal else inputs)


# --- status ----------------------------------------------------------------------------------------------------------


def status(trial: Trial, inputs: Inputs) -> Checked:
    """Each result asks for a gradient if and only if the reference's does."""
    expected = trial.reference.ask(Ask(inputs=inputs, cotangents=_RECORD))
    if not isinstance(expected, Answer):
        return "open"
    answer = answered(trial.candidate.ask(Ask(inputs=inputs, cotangents=_RECORD)))
    if isinstance(answer, Fault):
        return answer
    if fault := shape_fault(answer, expected):
        return fault
    for place, (mine, theirs) in enumerate(zip(answer.outputs, expected.outputs, strict=True)):
        if mine.requires_grad != theirs.requires_grad:
            says = "asks for no gradient" if theirs.requires_grad else "asks for a gradient"
            return Fault(verdict="violation", why=f"output {place} {says}, unlike the reference's")
    return "agrees" if any(output.requires_grad for output in expected.outputs) else "open"


# --- values ----------------------------------------------------------------------------------------------------------


def cotangents(trial: Trial, answer: Answer) -> tuple[Tensor | None, ...]:
    """A random tensor for each output that asks for a gradient, of its dtype."""

    def one(place: int) -> Tensor | None:
        output = answer.outputs[place]
        if not output.requires_grad:
            return None
        generator = trial.generator(ID, "cotangent", place, *output.value.shape)
        drawn = torch.randn(output.value.shape, generator=generator, dtype=torch.float64)
        return drawn.to(output.value.dtype)

    return tuple(one(place) for place in range(len(answer.outputs)))


def backward(
    subject: Subject, inputs: Inputs, along: tuple[Tensor | None, ...], dtype: torch.dtype | None = None
) -> Answer | Fault:
    """A call and its backward; cotangents are cast to what the outputs are."""
    return answered(subject.ask(Ask(inputs=inputs, cotangents=along, dtype=dtype)))


def values(trial: Trial, figures: dict[str, float], name: str, inputs: Inputs) -> Checked:
    """Gradients of inputs and parameters need no more than ``KAPPA``; ``figures[name]`` is what they need."""
    forward = trial.reference.ask(Ask(inputs=inputs, cotangents=_RECORD))
    if not isinstance(forward, Answer) or not any(output.requires_grad for output in forward.outputs):
        return "open"
    along = cotangents(trial, forward)
    theirs = backward(trial.reference, inputs, along, measured_in(trial.dtype))
    exact = backward(trial.reference, inputs, along, torch.float64)
    if isinstance(theirs, Fault) or isinstance(exact, Fault):
        return "open"
    mine = backward(trial.candidate, inputs, along)
    if isinstance(mine, Fault):
        return mine
    beside = nearby(trial, inputs, along, trial.generator(ID, "nearby"))
    if beside is None:
        return "open"
    checked: Checked = "open"
    further = functools.cache(
        functools.partial(roundings_away, trial, inputs, along, trial.generator(ID, "roundings away"))
    )
    for title, got, wanted, true, others in _gradients(mine, theirs, exact, beside):
        if got is None:
            return Fault(verdict="violation", why=f"no gradient reaches {title}, the reference's does")
        if got.shape != wanted.shape:
            why = f"the gradient of {title} has shape {list(got.shape)} instead of {list(wanted.shape)}"
            return Fault(verdict="violation", why=why)
        settled = steady(true, others, granted_dtype(wanted, trial.dtype))
        needed = answers_kappa((got[settled],), (wanted[settled],), (true[settled],), trial.dtype)
        if needed is not None and needed > KAPPA and further():
            away = [other for answer in further() if (other := _named(answer).get(title)) is not None]
            settled &= steady(true, away, granted_dtype(wanted, trial.dtype))
            needed = answers_kappa((got[settled],), (wanted[settled],), (true[settled],), trial.dtype)
        if needed is None:
            continue
        checked = "agrees"
        figures[name] = max(figures.get(name, 0.0), min(needed, INFINITE))
        if needed > KAPPA:
            why = (
                f"the gradient of {title} errs {needed:.3g} times as much as the yardstick; {KAPPA:g} times is granted"
            )
            return Fault(verdict="violation", why=why)
    return checked


def _gradients(
    mine: Answer, theirs: Answer, exact: Answer, beside: list[Answer]
) -> Iterator[tuple[str, Tensor | None, Tensor, Tensor, list[Tensor]]]:
    """(title, candidate's, reference's, float64's there and nearby) of each gradient that the reference has.

    A parameter that the candidate has under no such name is left out: it may keep its weights in another form.
    """
    got, true = _named(mine), _named(exact)
    for title, wanted in _named(theirs).items():
        others = [other for answer in beside if (other := _named(answer).get(title)) is not None]
        best = true.get(title)
        if wanted is not None and best is not None and title in got:
            yield title, got[title], wanted, best, others


def _named(answer: Answer) -> dict[str, Tensor | None]:
    """Gradients by what they are of."""
    inputs = {f"input {place}": one for place, one in enumerate(answer.input_gradients)}
    return inputs | {f"parameter {name}": one for name, one in answer.state_gradients.items()}


# --- slopes ----------------------------------------------------------------------------------------------------------


def slopes(trial: Trial, figures: dict[str, float], inputs: Inputs) -> Checked:
    """In float64, along a random direction, the gradient is the slope; ``open`` where the candidate has no float64."""
    double = asking(mapped(inputs, lambda place, value: value.double() if value.is_floating_point() else value))
    if not any(value.requires_grad for value in tensors_of(double)):
        return "open"
    forward = trial.reference.ask(Ask(inputs=double, dtype=torch.float64, cotangents=_RECORD))
    if not isinstance(forward, Answer) or any(
        output.requires_grad and output.value.dtype != torch.float64 for output in forward.outputs
    ):
        return "open"
    along = cotangents(trial, forward)
    if all(each is None for each in along):
        return "open"
    generator = trial.generator(ID, "direction")
    theirs = slope_error(trial.reference, double, along, generator)
    if theirs is None or theirs > SLACK_MAX:
        return "open"
    mine = slope_error(trial.candidate, double, along, trial.generator(ID, "direction"))
    if mine is None:
        return "open"
    figures[_DIFFERENCE] = max(figures.get(_DIFFERENCE, 0.0), mine)
    if mine <= KAPPA * max(theirs, SLACK):
        return "agrees"
    why = f"in float64 its gradient is off the slope by {mine:.2g} of it, the reference's by {theirs:.2g}"
    return Fault(verdict="violation", why=why)


GATE = Gate(
    id=ID,
    name="gradient",
    tolerance_free=False,
    catches="results detached from the graph, a backward by another formula, gradients summed in a narrow format",
    judge=judge,
)
