"""Certificates: what was proved, of which schedule, by which validator; and the type that only a proof makes.

A stored certificate is never trusted in place of a proof: it says what to compare, and whoever loads a schedule runs
the validator again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NoReturn

import msgspec

from amk.errors import CertificateMismatchError, ScheduleRefutedError, ScheduleUnknownError, UnreadableInputError
from amk.ir.record import Record
from amk.ir.regions import TOKENS
from amk.ir.schedule import Schedule
from amk.validator.check import validate
from amk.validator.digest import validator_digest
from amk.validator.findings import Outcome, Verdict


class Certificate(Record):
    """What a proof covers. Two runs give the same bytes.

    Attributes
    ----------
    schedule, validator, vm
        Digests: of the schedule's canonical form, of the sources that judged it, of the virtual machine whose
        obligations the proof assumes (empty for the reference machine).
    steps_max, max_context, tokens, drift
        The launches covered: every 1 <= S <= steps_max and pos0 with pos0 + S*m <= max_context, m in ``tokens``.
    statistics
        What was checked.
    """

    schedule: str
    validator: str
    vm: str
    steps_max: int
    max_context: int
    tokens: tuple[int, int]
    drift: int
    verdict: Outcome
    statistics: dict[str, int]

    def one_line(self) -> str:
        """The certificate for a person, in one line."""
        counts = self.statistics
        low, high = self.tokens
        return (
            f"{self.verdict.name} schedule {self.schedule[:12]} by validator {self.validator[:12]}: "
            f"{counts.get('tasks', 0)} tasks, {counts.get('workers', 0)} workers, {low}..{high} rows a step, "
            f"{self.steps_max} steps, context {self.max_context}, drift {self.drift}"
        )

    def to_json(self) -> bytes:
        """Canonical JSON."""
        return msgspec.json.encode(self, order="sorted")

    @classmethod
    def from_json(cls, data: bytes, *, path: str | Path = "<memory>") -> Certificate:
        """Read a certificate, strictly; raises UnreadableInputError."""
        try:
            return msgspec.json.decode(data, type=cls, strict=True)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            fix = "write it again with `amk validate SCHEDULE --certificate FILE`"
            raise UnreadableInputError(path=path, why=error, fix=fix) from None


_SEAL: Final = object()


class ValidatedSchedule:
    """A schedule that was proved in this process. Only ``certify`` makes one; code generation takes nothing else."""

    __slots__ = ("_certificate", "_schedule")
    _certificate: Certificate
    _schedule: Schedule

    def __init__(self, schedule: Schedule, certificate: Certificate, *, seal: object = None) -> None:
        if seal is not _SEAL:
            raise TypeError("a ValidatedSchedule is made by amk.validator.certify alone")
        object.__setattr__(self, "_schedule", schedule)
        object.__setattr__(self, "_certificate", certificate)

    @property
    def schedule(self) -> Schedule:
        """The schedule that was proved."""
        return self._schedule

    @property
    def certificate(self) -> Certificate:
        """What was proved of it."""
        return self._certificate

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a ValidatedSchedule cannot be changed: {name}")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ValidatedSchedule is not stored: store the schedule and certify it again")


def certify(schedule: Schedule, *, vm: str = "") -> ValidatedSchedule:
    """Prove ``schedule``.

    Parameters
    ----------
    vm
        Digest of the virtual machine that is to run it, whose obligations the proof assumes; empty for the reference
        machine, which runs a task at a time and owes nothing.

    Raises
    ------
    ScheduleRefutedError
        It breaks a rule; ``facts["verdict"]`` carries the findings.
    ScheduleUnknownError
        It could be neither proved nor refuted.
    """
    verdict = validate(schedule)
    witnesses = "\n".join(str(finding) for finding in verdict.findings)
    if verdict.outcome is Outcome.REFUTED:
        raise ScheduleRefutedError(witnesses=witnesses, verdict=verdict)
    if verdict.outcome is Outcome.UNKNOWN:
        raise ScheduleUnknownError(reason=witnesses, verdict=verdict)
    return ValidatedSchedule(schedule, certificate_of(schedule, verdict, vm=vm), seal=_SEAL)


def certificate_of(schedule: Schedule, verdict: Verdict, *, vm: str = "") -> Certificate:
    """The certificate of a verdict, whatever it is."""
    ranges = {symbol.name: (symbol.low, symbol.high) for symbol in schedule.symbols}
    return Certificate(
        schedule=schedule.digest(),
        validator=validator_digest(),
        vm=vm,
        steps_max=schedule.steps_max,
        max_context=schedule.max_context,
        tokens=ranges.get(TOKENS, (0, 0)),
        drift=schedule.target.drift,
        verdict=verdict.outcome,
        statistics=verdict.statistics,
    )


def check_certificate(
    certificate: Certificate, schedule: Schedule, *, path: str | Path = "<memory>", vm: str = ""
) -> None:
    """Raise CertificateMismatchError unless ``certificate`` is this validator's proof of ``schedule`` on ``vm``."""
    ranges = {symbol.name: (symbol.low, symbol.high) for symbol in schedule.symbols}
    expected = {
        "verdict": Outcome.PROVED,
        "schedule": schedule.digest(),
        "validator": validator_digest(),
        "vm": vm,
        "steps_max": schedule.steps_max,
        "max_context": schedule.max_context,
        "tokens": ranges.get(TOKENS, (0, 0)),
        "drift": schedule.target.drift,
    }
    for field, want in expected.items():
        found = getattr(certificate, field)
        if found != want:
            raise CertificateMismatchError(path=path, field=field, found=found, expected=want)
