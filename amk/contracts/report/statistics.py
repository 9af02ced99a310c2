"""What judgements amount to: counts, shares with exact intervals, and the standard test beside the verifier."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from scipy.stats import beta

from amk.contracts.gates.kappa import KAPPA, SWEEP
from amk.contracts.verdicts import STANDARD, Judgement, Status, Verdict
from amk.ir.record import Record

CONFIDENCE: Final = 0.95

STATUSES: Final[tuple[Status, ...]] = get_args(Status)
VERDICTS: Final[tuple[Verdict, ...]] = get_args(Verdict)

RATIO: Final = "G07"
"""The gate that measures kappa."""

NEEDED: Final = "kappa"
"""Its figure: the least kappa at which the kernel passes."""

TOLERANCES: Final = ("0.01", "0.0001")
"""Of the standard test, as its figures name them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A judgement in as little room as a report's figures need: reports of many kernels are made of these.

    Attributes
    ----------
    kappa
        The least kappa at which G07 passes; None where it was not adjudicated.
    standard
        By tolerance, whether the standard test accepts; empty where it was not run.
    """

    kernel: str
    status: Status
    verdicts: dict[str, Verdict]
    kappa: float | None
    standard: dict[str, bool]

    @classmethod
    def of(cls, judgement: Judgement) -> Row:
        """The row of one judgement."""
        return cls(
            kernel=judgement.kernel,
            status=judgement.status,
            verdicts={finding.gate: finding.verdict for finding in judgement.findings},
            kappa=_kappa(judgement),
            standard=_standard(judgement),
        )


class Share(Record):
    """``count`` of ``of``, and the exact (Clopper-Pearson) interval of the rate at 95 %."""

    count: int
    of: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        return self.count / self.of if self.of else math.nan


class KappaPoint(Record):
    """The share of kernels that pass G07 at one kappa."""

    kappa: float
    passing: Share


class Contingency(Record):
    """The standard test at one tolerance against the verifier, over the kernels that both have judged.

    Attributes
    ----------
    both_accept, standard_only, verifier_only, neither
        Kernels by who accepts them.
    missed
        Of the kernels that the standard test accepts, those that the verifier rejects.
    spared
        Of those that the standard test rejects, those that the verifier accepts.
    agreement
        Kernels of which both say the same.
    left_out
        Kernels of which one of the two has no verdict.
    """

    tolerance: str
    both_accept: int
    standard_only: int
    verifier_only: int
    neither: int
    missed: Share
    spared: Share
    agreement: Share
    left_out: int


class Statistics(Record):
    """Of one audit. ``violating`` counts the broken ones too; shares are of the kernels that were judged."""

    kernels: int
    statuses: dict[str, int]
    gates: dict[str, dict[str, int]]
    conforming: Share
    violating: Share
    broken: Share
    failed: Share
    kappa: tuple[KappaPoint, ...]
    contingency: tuple[Contingency, ...]


def share(count: int, of: int) -> Share:
    """``count`` of ``of`` with its Clopper-Pearson interval: the quantiles of two beta distributions.

    With nothing observed the interval is all of [0, 1].
    """
    tail = (1 - CONFIDENCE) / 2
    low = float(beta.ppf(tail, count, of - count + 1)) if count else 0.0
    high = float(beta.ppf(1 - tail, count + 1, of - count)) if count < of else 1.0
    return Share(count=count, of=of, low=low, high=high)


def statistics(rows: Sequence[Row]) -> Statistics:
    """All figures of a report."""
    statuses = Counter(row.status for row in rows)
    judged = len(rows) - statuses["not judged"]
    ratios = [row.kappa for row in rows if row.kappa is not None]
    return Statistics(
        kernels=len(rows),
        statuses={status: statuses[status] for status in STATUSES},
        gates=_by_gate(rows),
        conforming=share(statuses["conforms"], judged),
        violating=share(statuses["violation"] + statuses["broken"], judged),
        broken=share(statuses["broken"], judged),
        failed=share(statuses["failed"], judged),
        kappa=tuple(
            KappaPoint(kappa=kappa, passing=share(sum(ratio <= kappa for ratio in ratios), len(ratios)))
            for kappa in SWEEP
        ),
        contingency=tuple(_contingency(rows, tolerance) for tolerance in TOLERANCES),
    )


def _by_gate(rows: Iterable[Row]) -> dict[str, dict[str, int]]:
    counts: dict[str, Counter[Verdict]] = {}
    for row in rows:
        for gate, verdict in row.verdicts.items():
            counts.setdefault(gate, Counter())[verdict] += 1
    return {gate: {verdict: counts[gate][verdict] for verdict in VERDICTS} for gate in sorted(counts)}


def _contingency(rows: Sequence[Row], tolerance: str) -> Contingency:
    """A kernel that only conforms is accepted by the verifier; one that failed, or was not judged, is left out."""
    pairs = Counter(
        (row.standard[tolerance], row.status == "conforms")
        for row in rows
        if tolerance in row.standard and row.status in {"conforms", "violation", "broken"}
    )
    accepted = pairs[True, True] + pairs[True, False]
    return Contingency(
        tolerance=tolerance,
        both_accept=pairs[True, True],
        standard_only=pairs[True, False],
        verifier_only=pairs[False, True],
        neither=pairs[False, False],
        missed=share(pairs[True, False], accepted),
        spared=share(pairs[False, True], pairs.total() - accepted),
        agreement=share(pairs[True, True] + pairs[False, False], pairs.total()),
        left_out=len(rows) - pairs.total(),
    )


def _kappa(judgement: Judgement) -> float | None:
    """Infinite where G07 was violated by something that no kappa would grant: a death, another shape."""
    found = judgement.finding(RATIO)
    if found is None or found.verdict not in {"pass", "violation"}:
        return None
    needed = found.figures.get(NEEDED)
    if found.verdict == "violation" and (needed is None or needed <= KAPPA):
        return math.inf
    return needed


def _standard(judgement: Judgement) -> dict[str, bool]:
    found = judgement.finding(STANDARD)
    if found is None or not found.figures.get("seeds"):
        return {}
    return {
        tolerance: found.figures[f"passed at {tolerance}"] == found.figures["seeds"]
        for tolerance in TOLERANCES
        if f"passed at {tolerance}" in found.figures
    }
