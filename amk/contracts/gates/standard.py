"""G00: the test that benchmarks use. It decides nothing; a report sets the other gates beside it."""

from __future__ import annotations

from typing import Final

import torch

from amk.contracts.gates import Gate
from amk.contracts.gates.cases import Fault, answered, fault_finding, finding
from amk.contracts.outcomes import Answer, Ask
from amk.contracts.trial import Trial
from amk.contracts.verdicts import STANDARD, Finding

SEEDS: Final = 5
LOOSE: Final = 1e-2
STRICT: Final = 1e-4


def judge(trial: Trial) -> Finding:
    """``torch.allclose`` on random inputs of five seeds, at 1e-2 and at 1e-4; the verdict is that at 1e-2."""
    seeds = torch.randint(1 << 31, (SEEDS,), generator=trial.generator(STANDARD)).tolist()
    passes = {LOOSE: 0, STRICT: 0}
    asked = 0
    first: Finding | None = None
    for seed in seeds:
        inputs = trial.inputs(seed)
        expected = trial.expected(inputs)
        if not isinstance(expected, Answer):
            continue
        asked += 1
        answer = answered(trial.candidate.ask(Ask(inputs=inputs)))
        for tolerance in passes:
            passes[tolerance] += isinstance(answer, Answer) and close(answer, expected, tolerance)
        if first is None and passes[LOOSE] < asked:
            why = answer.why if isinstance(answer, Fault) else f"not within {LOOSE} of the reference"
            fault = Fault(verdict="violation", why=why)
            first = fault_finding(trial, STANDARD, f"random inputs of seed {seed}", inputs, fault)
        if isinstance(answer, Fault) and not answer.shrinks:
            break
    figures = {f"passed at {tolerance:g}": float(count) for tolerance, count in passes.items()} | {
        "seeds": float(asked)
    }
    if not asked:
        return finding(trial, STANDARD, "not applicable", "the reference refuses its own inputs", figures=figures)
    if first is not None:
        why, failing = first.why, first.failing
        return finding(trial, STANDARD, "violation", why, cases=asked, figures=figures, failing=failing)
    why = f"within {LOOSE} of the reference at {asked} seeds"
    return finding(trial, STANDARD, "pass", why, cases=asked, figures=figures)


def close(candidate: Answer, reference: Answer, tolerance: float) -> bool:
    """The benchmark's rule: the same shapes, and ``allclose`` with ``atol`` and ``rtol`` alike; NaN equals nothing."""
    if len(candidate.outputs) != len(reference.outputs):
        return False
    return all(
        mine.shape == theirs.shape
        and mine.dtype == theirs.dtype
        and torch.allclose(mine, theirs, rtol=tolerance, atol=tolerance)
        for mine, theirs in zip(candidate.values, reference.values, strict=True)
    )


GATE = Gate(
    id=STANDARD,
    name="standard test",
    tolerance_free=False,
    catches="gross errors on random inputs of one shape",
    judge=judge,
)
