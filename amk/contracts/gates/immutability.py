"""G08: a kernel changes nothing, shares nothing and returns nothing but what its reference does."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Final

import torch

from amk.contracts.gates import Gate
from amk.contracts.gates.cases import Case, Checked, Fault, Inputs, answered, judge_cases
from amk.contracts.outcomes import Answer, Ask, Output
from amk.contracts.trial import Trial
from amk.contracts.verdicts import Finding

ID: Final = "G08"


def judge(trial: Trial) -> Finding:
    """Look at what nominal inputs, and others of their size, are after the call, and at what came back."""
    return judge_cases(
        trial,
        ID,
        cases(trial),
        functools.partial(check, trial),
        passed="inputs, parameters, buffers and random state are left alone; outputs are of the reference's kind",
        absent="the reference does not answer",
    )


def cases(trial: Trial) -> Iterator[Case]:
    """Nominal inputs, and ones drawn anew: a kernel may write to its inputs in one of its branches only."""
    yield Case(name="nominal")
    seed = int(torch.randint(1 << 31, (), generator=trial.generator(ID)))

    def redrawn(inputs: Inputs) -> Inputs:
        return trial.inputs(seed) if inputs is trial.nominal else inputs

    yield Case(name=f"random inputs of seed {seed}", make=redrawn)


def check(trial: Trial, inputs: Inputs) -> Checked:
    """What the candidate's call leaves behind, beside what the reference's does."""
    expected = trial.expected(inputs)
    if not isinstance(expected, Answer):
        return "open"
    answer = answered(trial.candidate.ask(Ask(inputs=inputs)))
    if isinstance(answer, Fault):
        return answer
    wrong = effect(answer, expected) or form(answer, expected)
    return Fault(verdict="violation", why=wrong) if wrong else "agrees"


def effect(answer: Answer, expected: Answer) -> str:
    """What the call changed beyond what the reference changes, or left where the reference changes it; or nothing.

    A parameter or buffer may have another name in the candidate, and a random number may be drawn in vain: that one of
    these is left alone is no fault.
    """
    if answer.patched:
        return f"it replaces {_listed(answer.patched)}"
    if changed := _beyond(answer.inputs_changed, expected.inputs_changed):
        return f"it writes to {_listed(changed)}, which the reference does not"
    if left := _beyond(expected.inputs_changed, answer.inputs_changed):
        return f"it leaves {_listed(left)} as it was, to which the reference writes"
    if changed := _beyond(answer.state_changed, expected.state_changed):
        return f"it changes {_listed(changed)}, which the reference does not"
    return ""


def form(answer: Answer, expected: Answer) -> str:
    """How what came back differs in kind from what the reference returns; or nothing."""
    if answer.structure != expected.structure:
        return f"it returns {answer.structure}, the reference {expected.structure}"
    for index, (mine, theirs) in enumerate(zip(answer.outputs, expected.outputs, strict=True)):
        for name, (got, wanted) in _traits(mine, theirs).items():
            if got != wanted:
                return f"the {name} of output {index} is {got}, that of the reference's is {wanted}"
        if shared := mine.aliases - theirs.aliases:
            return f"output {index} shares memory with {_listed(sorted(shared))}, the reference's does not"
    return ""


def _traits(mine: Output, theirs: Output) -> dict[str, tuple[object, object]]:
    return {
        "dtype": (mine.value.dtype, theirs.value.dtype),
        "shape": (list(mine.value.shape), list(theirs.value.shape)),
        "device": (mine.device, theirs.device),
        "class": (mine.kind, theirs.kind),
    }


def _beyond(names: tuple[str, ...], allowed: tuple[str, ...]) -> list[str]:
    return [name for name in names if name not in allowed]


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names)


GATE = Gate(
    id=ID,
    name="immutability and aliasing",
    tolerance_free=True,
    catches="inputs overwritten, views of them returned, lazy tensors, another dtype, a patched comparison",
    judge=judge,
)
