"""G01: one NaN or infinity in an input comes out where the reference lets it out, and nowhere else."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
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
    class_fault,
    difference,
    floating,
    judge_cases,
    mapped,
    sizes_of,
    with_tensor,
)
from amk.contracts.gates.whole import settled
from amk.contracts.outcomes import Answer, Ask
from amk.contracts.trial import Trial, tensors_of
from amk.contracts.verdicts import Finding

ID: Final = "G01"
PLANTED: Final = {"NaN": math.nan, "+Inf": math.inf, "-Inf": -math.inf}
PLACES: Final = ("the last", "the first", "the middle", "every")
TILE: Final = 32
INSTEAD: Final = 1e3
"""What is planted, of both signs, to see which whole numbers hang on the planted element."""


def judge(trial: Trial) -> Finding:
    """Plant each in each floating input, at nominal sizes and at ones whose last tile holds one element."""
    return judge_cases(
        trial,
        ID,
        cases(trial),
        functools.partial(check, trial, indices=True),
        passed="NaN, +Inf and -Inf in each floating input give the reference's classes",
        absent="no floating input, or the reference and its float64 run differ in class everywhere",
    )


def cases(trial: Trial) -> Iterator[Case]:
    """At nominal sizes all places; at each size with a last tile of one element, the last place."""
    for place in floating(trial.nominal):
        for where in PLACES:
            for name, value in PLANTED.items():
                yield planted(trial, place, where, name, value)
    for old in sorted(sizes_of(trial.nominal)):
        for new in past_tiles(old):
            for place in floating(trial.nominal):
                for name, value in PLANTED.items():
                    yield planted(trial, place, "the last", name, value, {old: new})


def planted(trial: Trial, place: int, where: str, name: str, value: float, sizes: dict[int, int] | None = None) -> Case:
    """A case with ``value`` in one place of the floating input ``place``."""

    def make(inputs: Inputs) -> Inputs | None:
        tensor = tensors_of(inputs)[place]
        return with_tensor(inputs, place, plant(tensor, where, value)) if tensor.numel() else None

    return Case(
        name=f"{name} at {where} element of input {place}",
        make=make,
        sizes=sizes or {},
        check=functools.partial(check, trial, indices=where != "every"),
    )


def plant(tensor: Tensor, where: str, value: float) -> Tensor:
    """A contiguous copy with ``value`` at one of ``PLACES``."""
    changed = tensor.detach().clone(memory_format=torch.contiguous_format)
    flat = changed.view(-1)
    match where:
        case "the first":
            flat[0] = value
        case "the middle":
            flat[flat.numel() // 2] = value
        case "the last":
            flat[-1] = value
        case _:
            flat.fill_(value)
    return changed


def past_tiles(size: int) -> list[int]:
    """The first sizes above ``size`` that leave one element to the last tile, of 32 and of a power of two."""
    return sorted({TILE * math.ceil(size / TILE) + 1, (1 << (size - 1).bit_length()) + 1})


def check(trial: Trial, inputs: Inputs, *, indices: bool) -> Checked:
    """Classes equal the reference's, wherever those are also the float64 run's.

    Parameters
    ----------
    indices
        Whole numbers that hang on the planted element have to be equal besides: in an index it has no other trace. Not
        where all values are alike, so that any place would do.
    """
    expected, exact = trial.expected(inputs), trial.exact(inputs)
    if not isinstance(expected, Answer) or not isinstance(exact, Answer):
        return "open"
    answer = answered(trial.candidate.ask(Ask(inputs=inputs)))
    if isinstance(answer, Fault):
        return answer
    checked = class_fault("a class differs", answer, expected, exact, trial.dtype)
    whole = [place for place, true in enumerate(exact.values) if not (true.is_floating_point() or true.is_complex())]
    if isinstance(checked, Fault) or not indices or not whole:
        return checked
    others = [trial.expected(mapped(inputs, functools.partial(_instead, by))) for by in (INSTEAD, -INSTEAD)]
    kept = settled(trial, inputs, answer, exact)
    for index in whole:
        mine, theirs, true = kept[index], expected.values[index], exact.values[index]
        hangs_on_it = torch.zeros(theirs.shape, dtype=torch.bool)
        for other in others:
            hangs_on_it |= isinstance(other, Answer) and (other.values[index] != theirs)
        if (differs := (mine != theirs) & (theirs == true) & hangs_on_it).any():
            return difference("a whole number differs", index, differs, mine, theirs)
        checked = "agrees"
    return checked


def _instead(by: float, place: int, value: Tensor) -> Tensor:
    return value.nan_to_num(by, by, by) if value.is_floating_point() else value


GATE = Gate(
    id=ID,
    name="non-finite fidelity",
    tolerance_free=True,
    catches="NaN swallowed by x > 0 ? x : 0 or fmax, a maximum that starts at -FLT_MAX",
    judge=judge,
)
