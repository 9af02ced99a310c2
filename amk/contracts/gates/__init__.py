"""One gate a file; this one says what a gate is, and lists them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amk.contracts.trial import Trial
    from amk.contracts.verdicts import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A procedure, and what it is for.

    Attributes
    ----------
    id, name
        ``G01`` and ``non-finite fidelity``.
    tolerance_free
        It compares bits, classes or status; no bound that someone chose decides.
    catches
        Faults it is there for, in a line.
    judge
        Asks the trial's two subjects what it needs to, and returns a finding under its own id. It does not raise.
    """

    id: str
    name: str
    tolerance_free: bool
    catches: str
    judge: Callable[[Trial], Finding]


def gates() -> tuple[Gate, ...]:
    """G00 to G12, in order."""
    from amk.contracts.gates import (
        accumulation,
        asynchrony,
        determinism,
        error_ratio,
        freshness,
        gradient,
        immutability,
        layout,
        magnitude,
        memory,
        nonfinite,
        shapes,
        standard,
    )

    modules = (
        standard,
        nonfinite,
        magnitude,
        determinism,
        shapes,
        layout,
        accumulation,
        error_ratio,
        immutability,
        memory,
        asynchrony,
        freshness,
        gradient,
    )
    return tuple(module.GATE for module in modules)
