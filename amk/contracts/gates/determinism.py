"""G03: the same input gives the same bits, however often, whatever happens around it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

from torch import Tensor

from amk.contracts.gates import Gate
from amk.contracts.gates.cases import Case, Checked, Fault, Inputs, answered, judge_cases, mapped, sizes_of
from amk.contracts.outcomes import Ask
from amk.contracts.trial import Subject, Trial
from amk.contracts.verdicts import Finding

ID: Final = "G03"
RUNS: Final = 20


def judge(trial: Trial) -> Finding:
    """Twenty disturbed runs and one behind other inputs, at nominal sizes and at ragged ones; then another process."""
    cases = [Case(name=f"{RUNS} runs on one input")]
    if sizes := sizes_of(trial.nominal):
        cases.append(Case(name=f"{RUNS} runs on one input", sizes={max(sizes): 2 * max(sizes) + 1}))
    cases.append(Case(name="a second process", check=functools.partial(check, trial, in_two_processes)))
    return judge_cases(
        trial,
        ID,
        cases,
        functools.partial(check, trial, in_many_runs),
        passed=f"{RUNS} disturbed runs, one behind other inputs and one in a second process gave the same bits",
        absent="the reference refuses the input, or gives other bits from run to run",
    )


def check(trial: Trial, runs: Callable[[Trial, Subject, Inputs], tuple[str, ...] | Fault], inputs: Inputs) -> Checked:
    """The digests of the candidate's runs are one, where the reference's are."""
    theirs = runs(trial, trial.reference, inputs)
    if isinstance(theirs, Fault) or len(set(theirs)) != 1:
        return "open"
    mine = runs(trial, trial.candidate, inputs)
    if isinstance(mine, Fault):
        return mine
    if len(set(mine)) == 1:
        return "agrees"
    first = next(run for run, digest in enumerate(mine) if digest != mine[0])
    where = "the run behind other inputs" if first >= RUNS else f"run {first + 1}"
    why = f"{len(set(mine))} different results in {len(mine)} runs; {where} is the first to differ from run 1"
    return Fault(verdict="violation", why=why, shrinks=runs is in_many_runs)  # a process takes long to start


def in_many_runs(trial: Trial, subject: Subject, inputs: Inputs) -> tuple[str, ...] | Fault:
    """Digests of ``RUNS`` disturbed runs on ``inputs``, then of one behind calls on other inputs."""
    runs = answered(subject.ask(Ask(inputs=inputs, repeat=RUNS, disturb=True)))
    if isinstance(runs, Fault):
        return runs
    for other in (trial.inputs(trial.seed + 1), mapped(inputs, lambda place, value: _other(value))):
        subject.ask(Ask(inputs=other))
    last = answered(subject.ask(Ask(inputs=inputs)))
    return last if isinstance(last, Fault) else (*runs.digests, *last.digests)


def in_two_processes(trial: Trial, subject: Subject, inputs: Inputs) -> tuple[str, ...] | Fault:
    """Digests of a run, and of one in a process that has just been started.

    Both are forks of one server: libraries lie at the same addresses, and texts have the same hash.
    """
    first = answered(subject.ask(Ask(inputs=inputs)))
    if isinstance(first, Fault):
        return first
    subject.close()
    second = answered(subject.ask(Ask(inputs=inputs)))
    return second if isinstance(second, Fault) else (*first.digests, *second.digests)


def _other(value: Tensor) -> Tensor:
    """Floating values of another size and sign."""
    return -2 * value if value.is_floating_point() else value


GATE = Gate(
    id=ID,
    name="determinism",
    tolerance_free=True,
    catches="races, atomic sums of floats, results that depend on calls before or on the process",
    judge=judge,
)
