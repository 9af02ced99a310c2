"""G05: the same values in another layout give the same result."""

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
    judge_cases,
    mapped,
    nothing_left_to_round,
    same_values,
    shape_fault,
    with_tensor,
)
from amk.contracts.gates.error_ratio import answers_kappa
from amk.contracts.gates.kappa import KAPPA
from amk.contracts.outcomes import Answer, Ask
from amk.contracts.trial import Trial, tensors_of
from amk.contracts.verdicts import Finding

ID: Final = "G05"
INTEGERS: Final = 8
"""Values are rounded to integers of at most this magnitude, so that sums of products of them are exact."""


def judge(trial: Trial) -> Finding:
    """Give each tensor in each layout, with integers in it; where the reference refuses integers, as it is."""
    rounded = whole(trial.nominal)
    numbers = whole if isinstance(trial.expected(rounded), Answer) else contiguous
    return judge_cases(
        trial,
        ID,
        cases(trial, numbers),
        functools.partial(check, trial),
        passed="transposed, sliced, expanded and channels-last inputs give what contiguous ones do",
        absent="no tensor with a second layout, or the reference itself depends on the layout",
    )


# --- inputs ----------------------------------------------------------------------------------------------------------


def cases(trial: Trial, numbers: Callable[[Inputs], Inputs]) -> Iterator[Case]:
    """Each layout of each tensor, the others staying contiguous."""
    for place in range(len(tensors_of(trial.nominal))):
        for name, lay in LAYOUTS.items():
            make = functools.partial(_laid, numbers, place, lay)
            yield Case(name=f"input {place} {name}", make=make)


def whole(inputs: Inputs) -> Inputs:
    """Floating values four times as large, rounded, within ``INTEGERS``; contiguous, each in a storage of its own."""
    return mapped(contiguous(inputs), lambda place, value: _whole(value))


def _whole(value: Tensor) -> Tensor:
    return (value * 4).round().clamp(-INTEGERS, INTEGERS) if value.is_floating_point() else value


def contiguous(inputs: Inputs) -> Inputs:
    """Every tensor as a fresh contiguous one."""
    return mapped(inputs, lambda place, value: value.clone(memory_format=torch.contiguous_format))


def _laid(
    numbers: Callable[[Inputs], Inputs], place: int, lay: Callable[[Tensor], Tensor | None], inputs: Inputs
) -> Inputs | None:
    plain = numbers(inputs)
    laid = lay(tensors_of(plain)[place])
    return None if laid is None else with_tensor(plain, place, laid)


def transposed(value: Tensor) -> Tensor | None:
    """The last two dimensions lie in memory the other way round."""
    if value.dim() < 2 or min(value.shape[-2:]) < 2:
        return None
    return value.transpose(-1, -2).contiguous().transpose(-1, -2)


def offset(value: Tensor) -> Tensor:
    """A contiguous slice that starts one element into its storage."""
    return sliced(value.reshape(1, -1), step=1)[0].view(value.shape)


def rows_apart(value: Tensor) -> Tensor | None:
    """A slice from column 1 on of wider rows."""
    return sliced(value, step=1) if value.dim() > 1 else None


def every_second(value: Tensor) -> Tensor | None:
    """Every second element of the last dimension."""
    return sliced(value, step=2) if value.dim() else None


def sliced(value: Tensor, *, step: int) -> Tensor:
    """``value`` as a slice, at offset 1, of a tensor whose other elements must not be read.

    Those are NaN, of integers the last value once more: an index must stay in its range.
    """
    stuffing = torch.nan if value.is_floating_point() else (value.reshape(-1)[-1] if value.numel() else 0)
    wide = value.new_empty((*value.shape[:-1], value.shape[-1] * step + 1))
    wide.fill_(stuffing)
    laid = wide[..., 1 : 1 + value.shape[-1] * step : step]
    laid.copy_(value)
    return laid


def expanded(value: Tensor, *, dim: int) -> Tensor | None:
    """One slice of the tensor, expanded along ``dim`` with stride 0."""
    if value.dim() == 0 or value.shape[dim] < 2:
        return None
    return value.narrow(dim, 0, 1).expand(value.shape)


def channels_last(value: Tensor) -> Tensor | None:
    """Images and volumes with their channels innermost."""
    match value.dim():
        case 4:
            return value.contiguous(memory_format=torch.channels_last)
        case 5:
            return value.contiguous(memory_format=torch.channels_last_3d)
        case _:
            return None


LAYOUTS: Final[dict[str, Callable[[Tensor], Tensor | None]]] = {
    "transposed": transposed,
    "at offset 1": offset,
    "as rows of a wider tensor": rows_apart,
    "as every second element": every_second,
    "expanded over rows": functools.partial(expanded, dim=0),
    "expanded over columns": functools.partial(expanded, dim=-1),
    "channels-last": channels_last,
}

# --- the check -------------------------------------------------------------------------------------------------------


def check(trial: Trial, inputs: Inputs) -> Checked:
    """The candidate's result equals its own on contiguous inputs, where the reference's does.

    Every bit of an exact result counts: the reference's float64 run's, its own, and the candidate's on contiguous ones.
    Elsewhere the order of a sum may follow the layout, and a result that is as near to float64 as the reference may be,
    or as its own, is accepted too.
    """
    plain = contiguous(inputs)
    expected, expected_plain, exact = trial.expected(inputs), trial.expected(plain), trial.exact(plain)
    if not (isinstance(expected, Answer) and isinstance(expected_plain, Answer) and isinstance(exact, Answer)):
        return "open"
    mine_plain = trial.candidate.ask(Ask(inputs=plain))
    if not isinstance(mine_plain, Answer) or shape_fault(mine_plain, expected_plain):
        return "open"
    if shape_fault(expected, expected_plain) or shape_fault(exact, expected_plain):
        return "open"
    mine = answered(trial.candidate.ask(Ask(inputs=inputs)))
    if isinstance(mine, Fault):
        return mine
    if fault := shape_fault(mine, mine_plain):
        return fault
    checked: Checked = "open"
    sides = zip(mine.values, mine_plain.values, expected.values, expected_plain.values, exact.values, strict=True)
    for index, (laid, own, theirs_laid, theirs, true) in enumerate(sides):
        by = functools.partial(_is_alike, true=true, theirs=theirs, dtype=trial.dtype)
        if not by(theirs_laid, theirs):
            continue
        if not by(laid, own):
            differs = (laid != own) & ~(laid.isnan() & own.isnan())
            return difference("not its result on the same values laid out contiguously", index, differs, laid, own)
        checked = "agrees"
    return checked


def _is_alike(laid: Tensor, own: Tensor, *, true: Tensor, theirs: Tensor, dtype: torch.dtype) -> bool:
    """Whether two results of one kernel are equal; where one is rounded, whether ``laid`` is near ``true``."""
    if same_values(laid, own):
        return True
    if laid.dtype != own.dtype or not theirs.is_floating_point():
        return False
    if nothing_left_to_round(theirs, true) and same_values(own, theirs):
        return False
    needed = answers_kappa((laid,), (theirs,), (true,), dtype)
    return needed is None or needed <= max(KAPPA, answers_kappa((own,), (theirs,), (true,), dtype) or 0.0)


GATE = Gate(
    id=ID,
    name="layout",
    tolerance_free=True,
    catches="ignored strides and offsets, data_ptr without contiguous",
    judge=judge,
)
