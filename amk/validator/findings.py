"""What the validator says: findings as data, the verdict they add up to, and the rules that can be explained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from amk.ir.record import Record


class Outcome(Enum):
    """Three answers; only PROVED launches."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


class Rule(Record):
    """A rule of the validator: its stable code, its name, and its formal statement."""

    code: str
    title: str
    statement: str

    def explain(self) -> str:
        """The rule as ``amk validate --explain`` prints it."""
        return f"{self.code} {self.title}\n\n{self.statement.strip()}"


class Finding(Record):
    """One violation, or one thing that could not be decided.

    Attributes
    ----------
    code, title
        Of the rule.
    what
        Tasks with their workers, counters, regions, symbols and steps, and the order that is missing.
    mend
        A change that would satisfy the rule, where one is known.
    unknown
        The rule could be neither shown nor refuted.
    """

    code: str
    title: str
    what: str
    mend: str = ""
    unknown: bool = False

    def __str__(self) -> str:
        text = f"{self.code} {self.title}: {self.what}"
        return f"{text}\n  mend: {self.mend}" if self.mend else text


# A schedule that is wrong in one way is often wrong in many places; the first few of a rule tell the story.
SHOWN_PER_RULE: Final = 8


class Report:
    """Collects findings; counts what it does not show."""

    def __init__(self) -> None:
        self._found: list[Finding] = []
        self._count: dict[str, int] = {}

    def add(self, rule: Rule, what: str, *, mend: str = "", unknown: bool = False) -> None:
        """Record a violation of ``rule``."""
        number = self._count.get(rule.code, 0) + 1
        self._count[rule.code] = number
        if number <= SHOWN_PER_RULE:
            self._found.append(Finding(code=rule.code, title=rule.title, what=what, mend=mend, unknown=unknown))

    def more(self, rule: Rule, count: int) -> None:
        """Count ``count`` further violations of ``rule`` without describing them."""
        self._count[rule.code] = self._count.get(rule.code, 0) + count

    def full(self, rule: Rule) -> bool:
        """Whether a further violation of ``rule`` would not be shown."""
        return self._count.get(rule.code, 0) >= SHOWN_PER_RULE

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def refuted(self) -> bool:
        """Whether anything found is a violation."""
        return any(not finding.unknown for finding in self._found)

    def findings(self) -> tuple[Finding, ...]:
        """What was found, with one line for what was left out of each rule.

        Beside a violation, what is merely open does not matter and is left out.
        """
        kept = [finding for finding in self._found if not (finding.unknown and self.refuted)]
        return tuple(self._with_rest(kept))

    def _with_rest(self, kept: list[Finding]) -> Iterator[Finding]:
        yield from kept
        shown = {finding.code: finding for finding in kept}
        for code, finding in shown.items():
            rest = self._count[code] - sum(one.code == code for one in kept)
            if rest > 0:
                what = f"and {rest} more of the same rule"
                yield Finding(code=code, title=finding.title, what=what, unknown=finding.unknown)


def outcome(findings: Iterable[Finding]) -> Outcome:
    """REFUTED if anything is violated, else UNKNOWN if anything is open, else PROVED."""
    kinds = {finding.unknown for finding in findings}
    if False in kinds:
        return Outcome.REFUTED
    return Outcome.UNKNOWN if kinds else Outcome.PROVED


class Verdict(Record):
    """The answer for one schedule.

    ``statistics`` count what was checked and do not depend on the machine; ``seconds`` does.
    """

    outcome: Outcome
    findings: tuple[Finding, ...]
    statistics: dict[str, int]
    seconds: float

    @property
    def proved(self) -> bool:
        """Whether the schedule may be launched."""
        return self.outcome is Outcome.PROVED

    def codes(self) -> frozenset[str]:
        """Codes of the rules that were violated or left open."""
        return frozenset(finding.code for finding in self.findings)

    def one_line(self) -> str:
        """The verdict for a person, in one line."""
        counts = self.statistics
        size = f"{counts.get('tasks', 0)} tasks on {counts.get('workers', 0)} workers"
        if self.outcome is Outcome.PROVED:
            text = f"{size}, {counts.get('checks', 0)} pairs ordered, window {counts.get('window', 0)}"
        else:
            text = f"{size}, {', '.join(sorted(self.codes()))}"
        return f"{self.outcome.name} {text}, {self.seconds:.2f} s"
