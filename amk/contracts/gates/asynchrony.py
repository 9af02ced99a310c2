"""G10: a kernel's work is done when its caller's stream says so, and nothing of it lives on."""

from __future__ import annotations

import functools
from typing import Final

from amk.contracts.gates import Gate
from amk.contracts.gates.cases import Case, Checked, Fault, Inputs, answered, judge_cases, shape_fault
from amk.contracts.gates.error_ratio import answers_kappa
from amk.contracts.gates.kappa import KAPPA
from amk.contracts.outcomes import Answer, Ask
from amk.contracts.trial import Trial
from amk.contracts.verdicts import Finding

ID: Final = "G10"

EARLIER: Final = "earlier"
"""How the labels of outputs of the call before begin."""


def judge(trial: Trial) -> Finding:
    """Look for what outlives the call; on a device, give it inputs that are produced late on a side stream."""
    cases = [Case(name="after the call", check=functools.partial(outlives, trial))]
    passed = "no thread outlives the call, nothing changes behind it"
    if trial.device == "cpu":
        passed = f"{passed}; the streams' part is not applicable: no device"
    else:
        cases.append(Case(name="inputs made late on a side stream", check=functools.partial(waits, trial)))
        passed = f"{passed}; inputs made late on a side stream give the default stream's bits"
    return judge_cases(
        trial,
        ID,
        cases,
        functools.partial(outlives, trial),
        passed=passed,
        absent="the reference does not answer",
    )


def outlives(trial: Trial, inputs: Inputs) -> Checked:
    """No thread is left, and no output changes, once the call has returned.

    The same call is made twice, so that a buffer which every call writes to has the same bits again: that is G11's to
    find, and what an output of a gate before has become is not looked at here.
    """
    expected = trial.expected(inputs)
    if not isinstance(expected, Answer):
        return "open"
    threads: set[str] = set()
    late: set[str] = set()
    for call in range(2):
        answer = answered(trial.candidate.ask(Ask(inputs=inputs)))
        if isinstance(answer, Fault):
            return answer
        threads.update(answer.threads)
        late.update(name for name in answer.late_change if call or not name.startswith(EARLIER))
    if left := sorted(threads - set(expected.threads)):
        return Fault(verdict="violation", why=f"it leaves threads behind: {', '.join(left)}")
    if changed := sorted(late - set(expected.late_change)):
        return Fault(verdict="violation", why=f"{', '.join(changed)} changed after the call had returned")
    return "agrees"


def waits(trial: Trial, inputs: Inputs) -> Checked:
    """On a side stream whose inputs come late: the default stream's bits, where both kernels have bits to repeat."""
    theirs = [answered(trial.reference.ask(Ask(inputs=inputs, late=late))) for late in (False, True)]
    mine = [answered(trial.candidate.ask(Ask(inputs=inputs, late=late, repeat=2 - late))) for late in (False, True)]
    expected, expected_late = theirs
    if isinstance(expected, Fault) or isinstance(expected_late, Fault):
        return "open"
    answer, answer_late = mine
    if isinstance(answer, Fault):
        return answer
    if isinstance(answer_late, Fault):
        return answer_late
    if fault := shape_fault(answer_late, expected):
        return fault
    if expected.digests == expected_late.digests and len(set(answer.digests)) == 1:
        if answer_late.digests[0] == answer.digests[0]:
            return "agrees"
        return Fault(
            verdict="violation", why="it does not wait for its inputs, or its caller is not made to wait for it"
        )
    return _by_kappa(trial, inputs, answer, answer_late, expected)


def _by_kappa(trial: Trial, inputs: Inputs, answer: Answer, late: Answer, expected: Answer) -> Checked:
    """As `waits` where bits do not repeat: conforming on the default stream, it has to conform on the other."""
    exact = trial.exact(inputs)
    if not isinstance(exact, Answer) or shape_fault(answer, expected):
        return "open"
    by = functools.partial(answers_kappa, reference=expected.values, exact=exact.values, dtype=trial.dtype)
    plain, delayed = by(answer.values), by(late.values)
    if plain is None or delayed is None or plain > KAPPA:
        return "open"
    if delayed <= KAPPA:
        return "agrees"
    why = f"its error is {delayed:.3g} times the yardstick there, and {plain:.3g} times on the default stream"
    return Fault(verdict="violation", why=why)


GATE = Gate(
    id=ID,
    name="stream and async",
    tolerance_free=True,
    catches="launches on the legacy stream, work that nobody waits for, threads that write later",
    judge=judge,
)
