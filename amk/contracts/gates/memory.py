"""G09: a kernel reads and writes the memory that is its own: its inputs, and what it has itself written."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
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
    as_bytes,
    difference,
    judge_cases,
    mapped,
    shape_fault,
    sizes_of,
)
from amk.contracts.outcomes import Answer, Ask
from amk.contracts.trial import Subject, Trial
from amk.contracts.verdicts import Finding

ID: Final = "G09"

POISONS: Final = (0xFF, 0x5A, 0xDA)
"""Bytes that fresh memory is filled with: as floating numbers NaN, a large positive and a large negative one. A sum
shows the first, a maximum the second, a minimum the third."""

REPEATS: Final = 10

GUARD: Final = 64
"""Elements before and behind an input: a multiple of every vector width, so that no alignment is lost."""

SIZES_MAX: Final = 4


def judge(trial: Trial) -> Finding:
    """Poison fresh memory, and fence the inputs, at nominal sizes and at ones that leave a ragged tail."""
    return judge_cases(
        trial,
        ID,
        cases(trial),
        functools.partial(poison_check, trial),
        passed="outputs do not depend on fresh memory, nor on what lies around the inputs; that is not written to",
        absent="the reference does not answer, or depends on what fresh memory holds",
    )


def cases(trial: Trial) -> Iterator[Case]:
    """Both checks at each choice of sizes."""
    choices: list[dict[int, int]] = [{}]
    for old in sorted(sizes_of(trial.nominal), reverse=True)[:SIZES_MAX]:
        choices += [{old: old + 1}, {old: 1}]
    for sizes in choices:
        yield Case(name="fresh memory filled", sizes=sizes, check=functools.partial(poison_check, trial))
        yield Case(name="inputs fenced", sizes=sizes, check=functools.partial(fence_check, trial))


# --- fresh memory ----------------------------------------------------------------------------------------------------


def poison_check(trial: Trial, inputs: Inputs) -> Checked:
    """The outputs are the same under each of ``POISONS``, and no element is one of them."""
    theirs = _poisoned(trial.reference, inputs)
    if isinstance(theirs, Fault) or len(_digests(theirs)) != 1:
        return "open"
    mine = _poisoned(trial.candidate, inputs)
    if isinstance(mine, Fault):
        return mine
    for poison, answer, expected in zip(POISONS, mine, theirs, strict=True):
        if fault := shape_fault(answer, expected) or poison_fault(answer, expected, poison):
            return fault
    if len(_digests(mine)) > 1 and _repeats(trial.candidate, Ask(inputs=inputs, poison=POISONS[0]), mine[0]):
        return _first_difference(mine)
    return "agrees"


def _repeats(subject: Subject, ask: Ask, before: Answer) -> bool:
    """Whether ``ask`` has always the same bits for an answer. Where it has not, G03 says so, and no more is learnt."""
    again = subject.ask(replace(ask, repeat=REPEATS))
    return isinstance(again, Answer) and len({*before.digests, *again.digests}) == 1


def _poisoned(subject: Subject, inputs: Inputs) -> list[Answer] | Fault:
    """An answer under each poison, of two calls."""
    answers = []
    for poison in POISONS:
        answer = answered(subject.ask(Ask(inputs=inputs, poison=poison, repeat=2)))
        if isinstance(answer, Fault):
            return answer
        answers.append(answer)
    return answers


def _digests(answers: list[Answer]) -> set[str]:
    return {digest for answer in answers for digest in answer.digests}


def poison_fault(answer: Answer, expected: Answer, poison: int) -> Fault | None:
    """A fault where an element has the poison's bytes, or is NaN under a poison that is, and the reference's is not."""
    for index, (mine, theirs) in enumerate(zip(answer.values, expected.values, strict=True)):
        if mine.dtype == torch.bool or not mine.numel():
            continue
        where = _is_poison(mine, poison) & ~_is_poison(theirs, poison)
        if where.any():
            return difference(f"it returns memory that nobody has written (0x{poison:02X})", index, where, mine, theirs)
    return None


def _is_poison(value: Tensor, poison: int) -> Tensor:
    raw = as_bytes(value).view(-1, value.element_size())
    found = (raw == poison).all(1).view(value.shape)
    nan = poison == 0xFF and (value.is_floating_point() or value.is_complex())
    return found | value.isnan() if nan else found


def _first_difference(answers: list[Answer]) -> Fault:
    """What two poisons made of the first output that they differ in."""
    for poison, answer in zip(POISONS[1:], answers[1:], strict=True):
        for index, (mine, first) in enumerate(zip(answer.values, answers[0].values, strict=True)):
            if mine.shape != first.shape or mine.dtype != first.dtype or not mine.numel():
                continue
            where = (as_bytes(mine) != as_bytes(first)).view(-1, mine.element_size()).any(1).view(mine.shape)
            if where.any():
                place = tuple(int(i) for i in where.nonzero()[0])
                why = (
                    f"output {index} at {list(place)} is {first[place].item()} where fresh memory holds "
                    f"0x{POISONS[0]:02X}, and {mine[place].item()} where it holds 0x{poison:02X}"
                )
                return Fault(verdict="violation", why=why)
    why = "what it returns depends on what fresh memory holds"
    return Fault(verdict="violation", why=why)


# --- around the inputs -----------------------------------------------------------------------------------------------


def fence_check(trial: Trial, inputs: Inputs) -> Checked:
    """The memory around the inputs is neither read, so far as the outputs show it, nor written."""
    fenced = [guarded(inputs, loud=loud) for loud in (False, True)]
    theirs = [trial.expected(each) for each in fenced]
    quiet, loud = theirs
    if not isinstance(quiet, Answer) or not isinstance(loud, Answer) or quiet.digests != loud.digests:
        return "open"
    plain = answered(trial.candidate.ask(Ask(inputs=inputs)))
    if isinstance(plain, Fault):
        return plain
    answers = []
    for each, expected in zip(fenced, (quiet, loud), strict=True):
        answer = answered(trial.candidate.ask(Ask(inputs=each)))
        if isinstance(answer, Fault):
            return answer
        # A storage that changes without a fence too is an input that is written to, of which G08 speaks.
        allowed = {*expected.inputs_changed, *plain.inputs_changed}
        if written := [name for name in answer.inputs_changed if name not in allowed]:
            return Fault(verdict="violation", why=f"it writes outside {', '.join(written)}")
        answers.append(answer)
    if answers[0].digests != answers[1].digests and _repeats(trial.candidate, Ask(inputs=fenced[0]), answers[0]):
        why = f"its outputs depend on what lies within {GUARD} elements of an input's ends"
        return Fault(verdict="violation", why=why)
    return "agrees"


def guarded(inputs: Inputs, *, loud: bool) -> Inputs:
    """Each tensor as a contiguous one amid ``GUARD`` elements on either side.

    Parameters
    ----------
    loud
        Fill them with NaN, the largest integer, or True; else with zero.
    """

    def one(place: int, value: Tensor) -> Tensor:
        around = torch.full((value.numel() + 2 * GUARD,), _loudest(value.dtype) if loud else 0, dtype=value.dtype)
        inside = around[GUARD : GUARD + value.numel()].view(value.shape)
        inside.copy_(value)
        return inside

    return mapped(inputs, one)


def _loudest(dtype: torch.dtype) -> float | int | bool:
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    return True if dtype == torch.bool else int(torch.iinfo(dtype).max)


GATE = Gate(
    id=ID,
    name="memory discipline",
    tolerance_free=True,
    catches="tails never written, stale memory used again, reads and writes out of bounds, launches that fail silently",
    judge=judge,
)
