"""What the gates share: cases and how they shrink, comparisons of classes and bits, and findings made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

import safetensors.torch
import torch
from torch import Tensor

from amk.contracts.gates.kappa import classes, settled_mask
from amk.contracts.outcomes import Answer, Died, Outcome, Raised, Value
from amk.contracts.trial import Trial, tensors_of
from amk.contracts.verdicts import Failing, Finding, Verdict

Inputs: TypeAlias = tuple[Value, ...]

DATA_BYTES_MAX: Final = 1 << 18
"""A failing input above this is described and not kept."""

GROWN_MAX: Final = 1 << 16
"""Elements of inputs whose sizes are changed, unless they are more than a quarter as many at nominal sizes."""

SMALL_SIZES: Final = (1, 2, 3, 5, 8, 16, 17, 33, 65)
"""What a dimension is tried at when a failing input is made smaller, in this order."""

_STORED: Final = frozenset(
    {
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
    }
)

# --- cases -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is wrong with one answer.

    Attributes
    ----------
    shrinks
        Whether it pays to look for a smaller input; not of a hang, each of which costs the whole time limit.
    """

    verdict: Literal["violation", "reject"]
    why: str
    shrinks: bool = True


Checked: TypeAlias = Fault | Literal["agrees", "open"]
"""Of one case; ``open``: it was not adjudicated, because the reference refuses it or does not agree with float64."""


def _unchanged(inputs: Inputs) -> Inputs | None:
    return inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One comparison that a gate makes.

    Attributes
    ----------
    name
        What is done: ``NaN at the last element of input 1``.
    make
        Makes the case's inputs of ordinary ones, whatever their size, without writing to them; None where it cannot.
    sizes
        Nominal sizes that are changed first, as ``Trial.resized`` takes them.
    check
        What to do with this case where it is not what is done with the gate's others.
    """

    name: str
    make: Callable[[Inputs], Inputs | None] = _unchanged
    sizes: Mapping[int, int] = field(default_factory=dict)
    check: Callable[[Inputs], Checked] | None = None

    def inputs(self, trial: Trial) -> Inputs | None:
        """The inputs of this case; None where there are none, or too large ones.

        A size that the reference takes only as 1 is one that it broadcasts to a parameter's: no size of the kernel's.
        """
        if not _affordable(trial.nominal, self.sizes):
            return None
        if any(new == 1 != old and trial.resized({old: old + 1}) is None for old, new in self.sizes.items()):
            return None
        base = trial.resized(dict(self.sizes)) if self.sizes else trial.nominal
        return None if base is None else self.make(base)

    @property
    def title(self) -> str:
        """The name, and the sizes that were changed."""
        changed = ", ".join(f"{old} -> {new}" for old, new in sorted(self.sizes.items()) if old != new)
        return f"{self.name}; sizes {changed}" if changed else self.name


def _affordable(inputs: Inputs, sizes: Mapping[int, int]) -> bool:
    shapes = [tensor.shape for tensor in tensors_of(inputs)]
    now = sum(map(math.prod, shapes))
    return sum(math.prod(sizes.get(size, size) for size in shape) for shape in shapes) <= max(GROWN_MAX, 4 * now)


def judge_cases(
    trial: Trial,
    gate: str,
    cases: Iterable[Case],
    check: Callable[[Inputs], Checked],
    *,
    passed: str,
    absent: str,
    figures: Mapping[str, float] | None = None,
) -> Finding:
    """Check cases until one is a violation, and say what they amount to.

    Parameters
    ----------
    cases
        Best in order of size. Made lazily: those behind the first violation, or behind the time limit, are not made.
    check
        Asks the trial's subjects, and compares.
    passed
        Why the gate passes: what was compared.
    absent
        Why it does not apply, where no case could be adjudicated.
    """
    adjudicated = 0
    rejected: tuple[Case, Inputs, Fault] | None = None
    measured = dict(figures or {})
    for case in cases:
        if not trial.still_running():
            passed, absent = f"{passed}; the time limit left further cases out", "no time was left"
            break
        inputs = case.inputs(trial)
        checked = "open" if inputs is None else (case.check or check)(inputs)
        if inputs is None or checked == "open":
            continue
        adjudicated += 1
        if not isinstance(checked, Fault):
            continue
        if checked.verdict == "violation":
            case, inputs, checked = shrink(trial, case, inputs, checked, check)  # noqa: PLW2901
            return fault_finding(trial, gate, case.title, inputs, checked, cases=adjudicated, figures=measured)
        rejected = rejected or (case, inputs, checked)
    if rejected:
        case, inputs, fault = shrink(trial, *rejected, check)
        return fault_finding(trial, gate, case.title, inputs, fault, cases=adjudicated, figures=measured)
    if adjudicated:
        return finding(trial, gate, "pass", passed, cases=adjudicated, figures=measured)
    return finding(trial, gate, "not applicable", absent, figures=measured)


def shrink(
    trial: Trial, case: Case, inputs: Inputs, fault: Fault, check: Callable[[Inputs], Checked]
) -> tuple[Case, Inputs, Fault]:
    """The same case at smaller sizes, as long as it still has a fault of the same verdict."""
    if not fault.shrinks:
        return case, inputs, fault
    for old in sorted(sizes_of(trial.nominal), reverse=True):
        for new in SMALL_SIZES:
            if new >= case.sizes.get(old, old) or not trial.still_running():
                break
            smaller = replace(case, sizes={**case.sizes, old: new})
            made = smaller.inputs(trial)
            checked = "open" if made is None else (case.check or check)(made)
            if made is not None and isinstance(checked, Fault) and checked.verdict == fault.verdict:
                case, inputs, fault = smaller, made, checked
                break
    return case, inputs, fault


# --- answers ---------------------------------------------------------------------------------------------------------


def answered(outcome: Outcome) -> Answer | Fault:
    """The candidate's answer; a refusal is a reject, a death a violation."""
    match outcome:
        case Answer():
            return outcome
        case Raised():
            return Fault(verdict="reject", why=f"it refuses this by {outcome}")
        case Died():
            return Fault(
                verdict="violation", why=f"it did not live through this: {outcome}", shrinks=outcome.how != "hang"
            )


def shape_fault(candidate: Answer, reference: Answer) -> Fault | None:
    """A fault where the candidate's outputs are not as many as the reference's, or of other shapes."""
    if len(candidate.outputs) != len(reference.outputs):
        why = f"it returns {len(candidate.outputs)} tensors, the reference {len(reference.outputs)}"
        return Fault(verdict="violation", why=why)
    for index, (mine, theirs) in enumerate(zip(candidate.values, reference.values, strict=True)):
        if mine.shape != theirs.shape:
            why = f"output {index} is {describe(mine)}, the reference's {describe(theirs)}"
            return Fault(verdict="violation", why=why)
    return None


def difference(message: str, index: int, where: Tensor, mine: Tensor, theirs: Tensor) -> Fault:
    """A violation at the first element of output ``index`` at which ``where`` is true."""
    place = tuple(int(i) for i in where.nonzero()[0])
    why = (
        f"{message}: output {index} at {list(place)} is {mine[place].item()}, the reference's {theirs[place].item()} "
        f"({int(where.sum())} of {where.numel()} elements)"
    )
    return Fault(verdict="violation", why=why)


# --- comparisons -----------------------------------------------------------------------------------------------------


def class_fault(message: str, candidate: Answer, reference: Answer, exact: Answer, dtype: torch.dtype) -> Checked:
    """Whether each element is finite, NaN, +Inf or -Inf as the reference's is, wherever that is settled.

    What is no float has no class.
    """
    if fault := shape_fault(candidate, reference):
        return fault
    settled_any = False
    for index, (mine, theirs, true) in enumerate(zip(candidate.values, reference.values, exact.values, strict=True)):
        if not real(true).is_floating_point():
            continue
        settled = settled_mask(real(theirs), real(true), dtype)
        differs = settled & (classes(real(mine)) != classes(real(theirs)))
        if differs.any():
            return difference(message, index, differs, real(mine), real(theirs))
        settled_any |= bool(settled.any())
    return "agrees" if settled_any else "open"


def real(value: Tensor) -> Tensor:
    """A complex tensor as pairs of real numbers; any other as it is."""
    return torch.view_as_real(value) if value.is_complex() else value


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have one shape, one dtype and the same bytes (NaNs by their payload, zeros by their sign)."""
    return a.shape == b.shape and a.dtype == b.dtype and torch.equal(as_bytes(a), as_bytes(b))


def same_values(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors have one shape, one dtype and equal elements; NaN equals NaN, and -0 equals 0."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(((a == b) | (a.isnan() & b.isnan())).all())


def nothing_left_to_round(value: Tensor, exact: Tensor) -> bool:
    """Whether a floating result is all of its float64 run, and finite, and single precision holds it."""
    if value.shape != exact.shape or not value.is_floating_point() or not exact.is_floating_point():
        return False
    true = exact.double()
    return bool(((value.double() == true) & (true.float().double() == true) & true.isfinite()).all())


def as_bytes(value: Tensor) -> Tensor:
    """The elements' bytes, flat, as uint8."""
    return value.detach().contiguous().reshape(-1).view(torch.uint8)


# --- inputs ----------------------------------------------------------------------------------------------------------


def mapped(inputs: Inputs, change: Callable[[int, Tensor], Tensor]) -> Inputs:
    """``inputs`` with ``change(place, tensor)`` in the place of each tensor; places count as ``tensors_of`` does.

    ``change`` gets tensors that record no gradient; what it makes asks for one where the input did.
    """
    places = iter(range(len(tensors_of(inputs))))

    def visit(value: Value) -> Value:
        match value:
            case Tensor():
                return change(next(places), value.detach()).detach().requires_grad_(value.requires_grad)
            case list():
                return [visit(item) for item in value]
            case tuple():
                return tuple(visit(item) for item in value)
            case dict():
                return {key: visit(item) for key, item in value.items()}
            case _:
                return value

    return tuple(visit(value) for value in inputs)


def with_tensor(inputs: Inputs, place: int, tensor: Tensor) -> Inputs:
    """``inputs`` with another tensor at ``place``."""
    return mapped(inputs, lambda index, value: tensor if index == place else value)


def floating(inputs: Inputs) -> list[int]:
    """Places of floating tensors."""
    return [place for place, value in enumerate(tensors_of(inputs)) if value.is_floating_point()]


def sizes_of(inputs: Inputs) -> set[int]:
    """Sizes above 1 that dimensions of the inputs have."""
    return {size for tensor in tensors_of(inputs) for size in tensor.shape if size > 1}


def describe(value: Value) -> str:
    """``float32[7, 33]``, with strides and offset where they are not those of a fresh tensor; numbers as they are."""
    match value:
        case Tensor():
            text = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
            if not value.is_contiguous():
                text += f" strides {list(value.stride())}"
            return f"{text} offset {value.storage_offset()}" if value.storage_offset() else text
        case list() | tuple():
            return f"[{', '.join(map(describe, value))}]"
        case dict():
            return f"{{{', '.join(f'{key}: {describe(item)}' for key, item in value.items())}}}"
        case _:
            return repr(value)


def failing(case: str, inputs: Inputs) -> Failing:
    """A record of a failing input, with its data where that is small enough."""
    tensors = tensors_of(inputs)
    kept = sum(tensor.nbytes for tensor in tensors) <= DATA_BYTES_MAX and all(t.dtype in _STORED for t in tensors)
    named = {
        str(place): tensor.detach().clone(memory_format=torch.contiguous_format) for place, tensor in enumerate(tensors)
    }
    data = safetensors.torch.save(named) if kept and named else b""
    return Failing(case=case, inputs=tuple(map(describe, inputs)), data=data)


# --- findings --------------------------------------------------------------------------------------------------------


def finding(
    trial: Trial,
    gate: str,
    verdict: Verdict,
    why: str,
    *,
    cases: int = 0,
    figures: Mapping[str, float] | None = None,
    failing: Failing | None = None,
) -> Finding:
    """A finding of this trial."""
    measured = dict(figures or {})
    return Finding(gate=gate, verdict=verdict, why=why, cases=cases, seed=trial.seed, figures=measured, failing=failing)


def fault_finding(
    trial: Trial,
    gate: str,
    case: str,
    inputs: Sequence[Value],
    fault: Fault,
    *,
    cases: int = 0,
    figures: Mapping[str, float] | None = None,
) -> Finding:
    """A finding that a fault amounts to, with the input that shows it."""
    shown = failing(case, tuple(inputs))
    return finding(trial, gate, fault.verdict, f"{case}: {fault.why}", cases=cases, figures=figures, failing=shown)
