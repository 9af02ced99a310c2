"""Small models with their verdicts, by name: ``tricky`` and ``traps`` fill the table."""

from __future__ import annotations

from dataclasses import dataclass

from amk.validator import AccessModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model, the code that refutes it (empty if it is proved), and why it is here."""

    name: str
    code: str
    why: str
    model: AccessModel


CASES: dict[str, Case] = {}


def case(name: str, code: str, why: str, found: AccessModel) -> None:
    assert name not in CASES
    CASES[name] = Case(name=name, code=code, why=why, model=found)
