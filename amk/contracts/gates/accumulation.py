"""G06: sums of integers that single precision holds exactly come out exact."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
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
    nothing_left_to_round,
    shape_fault,
    sizes_of,
)
from amk.contracts.gates.numbers import EXACT, SMALL, Numbers, numbers_for
from amk.contracts.outcomes import Answer, Ask
from amk.contracts.trial import Trial, tensors_of
from amk.contracts.verdicts import Finding

ID: Final = "G06"
DRAWS: Final = 3
"""A result counts as one that is exact on integers where it is on as many draws of small ones."""

FEW: Final = 64
"""Elements of a result: so many are not exact by luck, of fewer other draws have to be exact too."""

LENGTH: Final = 256
"""What smaller sizes are changed to besides, where the reference takes that: a mean over it is exact."""


def judge(trial: Trial) -> Finding:
    """Fill inputs and weights with integers; the answer is the float64 run's, where the reference's is."""
    return judge_cases(
        trial,
        ID,
        cases(trial, Exactness(trial)),
        lambda inputs: "open",
        passed="sums of integers that float32 holds exactly are exact",
        absent="no result of the reference is exact on integers",
    )


# --- cases -----------------------------------------------------------------------------------------------------------


def cases(trial: Trial, exactness: Exactness) -> Iterator[Case]:
    """Each filling of each floating input at nominal sizes; then with each smaller size in turn at ``LENGTH``."""

    def case(numbers: Numbers, place: int, sizes: Mapping[int, int]) -> Case:
        return Case(
            name=f"{numbers.name}, in input {place}",
            make=functools.partial(filled, trial, numbers, place, 0),
            sizes=sizes,
            check=functools.partial(check, trial, exactness, numbers, place),
        )

    tensors = tensors_of(trial.nominal)
    for place in floating(trial.nominal):
        for numbers in numbers_for(trial.dtype, range(tensors[place].dim())):
            yield case(numbers, place, {})
    for old in sorted(size for size in sizes_of(trial.nominal) if size < LENGTH):
        for place in floating(trial.nominal):
            if old in tensors[place].shape:
                for numbers in numbers_for(trial.dtype, [tensors[place].shape.index(old)]):
                    yield case(numbers, place, {old: LENGTH})


def filled(trial: Trial, numbers: Numbers, place: int, draw: int, inputs: Inputs) -> Inputs:
    """``inputs`` with other values in all that is floating."""
    generator = trial.generator(ID, numbers.name, place, draw)
    tensors = tensors_of(inputs)

    def change(index: int, value: Tensor) -> Tensor:
        if not value.is_floating_point():
            return value
        fill = numbers.fill if index == place else numbers.others
        beside = [*tensors[:index], *tensors[index + 1 :], *trial.weights.values()]
        return fill(tuple(value.shape), generator, _room(beside)).to(value.dtype)

    return mapped(inputs, change)


def state_filled(trial: Trial, numbers: Numbers) -> dict[str, Tensor]:
    """Parameters and buffers with values as the other inputs have them."""
    generator = trial.generator(ID, numbers.name, "state")
    room = _room(tensors_of(trial.nominal))
    return {
        name: numbers.others(tuple(value.shape), generator, room).to(value.dtype)
        for name, value in trial.weights.items()
        if value.is_floating_point()
    }


def _room(beside: Iterable[Tensor]) -> int:
    """What is left of float32's integers, if a sum takes an element once for each it meets in one of ``beside``.

    A product of matrices meets those of one dimension, so one dimension at least is not counted.
    """
    times = (value.numel() // min((size for size in value.shape if size > 1), default=1) for value in beside)
    return EXACT // max([1, *times])


# --- the check -------------------------------------------------------------------------------------------------------


def check(trial: Trial, exactness: Exactness, numbers: Numbers, place: int, inputs: Inputs) -> Checked:
    """The candidate's outputs are the float64 run's, where the reference's are and are so on integers altogether."""
    on_integers = exactness.outputs(inputs)
    if not on_integers:
        return "open"
    state = state_filled(trial, numbers)
    expected, exact = exact_outputs(trial, inputs, state, None)
    exact &= on_integers
    if expected is None or not exact:
        return "open"
    if sum(expected.values[index].numel() for index in exact) < FEW:
        for draw in range(1, DRAWS):
            exact &= exact_outputs(trial, filled(trial, numbers, place, draw, inputs), state, None)[1]
        if not exact:
            return "open"
    answer = answered(trial.candidate.ask(Ask(inputs=inputs, state=state)))
    if isinstance(answer, Fault):
        return answer
    if fault := shape_fault(answer, expected):
        return fault
    for index in sorted(exact):
        mine, theirs = answer.values[index], expected.values[index]
        if (differs := mine.double() != theirs.double()).any():
            return difference("a sum of integers is not exact", index, differs, mine, theirs)
    return "agrees"


class Exactness:
    """Which outputs of the reference are exact in single precision whenever integers go in.

    Of a case's own numbers one result may be exact by chance: a softmax over equal values, a tanh of large ones.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._known: dict[tuple[torch.Size, ...], frozenset[int]] = {}

    def outputs(self, inputs: Inputs) -> frozenset[int]:
        """Places of the outputs, for inputs of these shapes."""
        shapes = tuple(tensor.shape for tensor in tensors_of(inputs))
        if shapes not in self._known:
            self._known[shapes] = self._found(inputs)
        return self._known[shapes]

    def _found(self, inputs: Inputs) -> frozenset[int]:
        exact: frozenset[int] | None = None
        for draw in range(DRAWS):
            drawn = filled(self._trial, SMALL, -1, draw, inputs)
            whole = exact_outputs(self._trial, drawn, state_filled(self._trial, SMALL), torch.float32)[1]
            exact = whole if exact is None else exact & whole
            if not exact:
                break
        return exact or frozenset()


def exact_outputs(
    trial: Trial, inputs: Inputs, state: dict[str, Tensor], dtype: torch.dtype | None
) -> tuple[Answer | None, frozenset[int]]:
    """The reference's answer in ``dtype``, and those of its outputs that are all of what its float64 run says."""
    expected = trial.reference.ask(Ask(inputs=inputs, state=state, dtype=dtype))
    if not isinstance(expected, Answer):
        return None, frozenset()
    exact = trial.reference.ask(Ask(inputs=inputs, state=state, dtype=torch.float64))
    if not isinstance(exact, Answer) or shape_fault(expected, exact):
        return None, frozenset()
    pairs = enumerate(zip(expected.values, exact.values, strict=True))
    whole = (index for index, (mine, true) in pairs if true.numel() and nothing_left_to_round(mine, true))
    return expected, frozenset(whole)


GATE = Gate(
    id=ID,
    name="accumulation",
    tolerance_free=True,
    catches="totals in float16 or bfloat16, products in TF32",
    judge=judge,
)
