"""G04: the kernel takes the sizes that the reference takes, and is right there."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Final

import torch

from amk.contracts.gates import Gate
from amk.contracts.gates.cases import (
    Case,
    Checked,
    Fault,
    Inputs,
    answered,
    describe,
    judge_cases,
    shape_fault,
    sizes_of,
)
from amk.contracts.gates.error_ratio import answers_kappa, needed_kappa, yardstick
from amk.contracts.gates.kappa import KAPPA, SWEEP
from amk.contracts.gates.whole import settled
from amk.contracts.outcomes import Answer, Ask
from amk.contracts.trial import Trial
from amk.contracts.verdicts import Finding

ID: Final = "G04"
SIZES: Final = (1, 2, 3, 7, 13, 31, 33, 63, 65, 127, 129, 257)
"""One, primes, and the neighbours of powers of two."""

RAGGED: Final = (7, 13, 31, 33, 63, 65)
"""What several sizes at once are changed to."""


def judge(trial: Trial) -> Finding:
    """Change each size of the inputs alone, then all together; last make each zero."""
    return judge_cases(
        trial,
        ID,
        cases(trial),
        functools.partial(check, trial),
        passed="sizes of one, primes, beside powers of two, ragged and zero have the reference's shapes and values",
        absent="the reference takes no other sizes than the nominal ones",
    )


def cases(trial: Trial) -> Iterator[Case]:
    """Small sizes first."""
    olds = sorted(sizes_of(trial.nominal))
    changes: list[dict[int, int]] = []
    for old in olds:
        changes += [{old: new} for new in sorted({*SIZES, old - 1, old + 1, 2 * old + 1} - {old, 0})]
    for shift in range(3 if len(olds) > 1 else 0):
        changes.append({old: RAGGED[(shift + 2 * index) % len(RAGGED)] for index, old in enumerate(olds)})
    changes += [{old: 0} for old in olds]
    for sizes in changes:
        yield Case(name="other sizes", sizes=sizes)


def check(trial: Trial, inputs: Inputs) -> Checked:
    """Shapes and dtypes are the reference's; values are where the reference is a yardstick for them.

    In single precision the whole sweep of kappa is granted: a sum over more elements rounds more often, and how well it
    is done is another gate's question. Narrow types are added up in wider ones and rounded once, whatever the size.
    """
    expected, exact = trial.expected(inputs), trial.exact(inputs)
    if not isinstance(expected, Answer):
        return "open"
    answer = answered(trial.candidate.ask(Ask(inputs=inputs)))
    if isinstance(answer, Fault):
        return answer
    if fault := shape_fault(answer, expected):
        return fault
    for index, (mine, theirs) in enumerate(zip(answer.values, expected.values, strict=True)):
        if mine.dtype != theirs.dtype:
            return Fault(
                verdict="violation", why=f"output {index} is {describe(mine)}, the reference's {describe(theirs)}"
            )
    if not isinstance(exact, Answer):
        return "agrees"
    granted = KAPPA if trial.dtype.itemsize < torch.float32.itemsize else SWEEP[-1]
    kappa = _kappa(trial, inputs, answer, exact, granted)
    if kappa > granted:
        why = f"its error is {kappa:.3g} times what the reference's or one rounding is; {granted:g} are granted"
        return Fault(verdict="violation", why=why)
    return "agrees"


def _kappa(trial: Trial, inputs: Inputs, answer: Answer, exact: Answer, granted: float) -> float:
    """What the answer needs; 0 where nothing is settled. What is too much is looked at again with other values."""
    measure = yardstick(trial, inputs)
    if not isinstance(measure, Answer):
        return 0.0
    once = answers_kappa(settled(trial, inputs, answer, exact), measure.values, exact.values, trial.dtype) or 0.0
    again = needed_kappa(trial, inputs) if once > granted else once
    return again if isinstance(again, float) else once


GATE = Gate(
    id=ID,
    name="shape generalisation",
    tolerance_free=True,
    catches="a tail without its mask, a size written into the code",
    judge=judge,
)
