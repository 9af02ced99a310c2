"""What the cases of a campaign add up to."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from amk.validator import Outcome
from tests.campaign.decide import Case


class Tally:
    """Counts cases, in all and by class."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.per_class: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.codes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.bases: Counter[str] = Counter()
        self.disagreements: list[dict[str, Any]] = []

    def add(self, number: int, case: Case) -> None:
        """Count one case."""
        facts = ["cases", case.outcome.value, *(f"by_{who}" for who in case.by)]
        random = case.kind.startswith("random")
        facts.append("random" if random else "mutants")
        if case.outcome is Outcome.PROVED and not case.wrong:
            facts.append("harmless_shown")
        if case.wrong:
            facts.append(_wrong(case))
            self.disagreements.append(
                {"case": number, "class": case.kind, "base": case.base, "codes": case.codes, "what": case.wrong}
            )
        self.counts.update(facts)
        self.per_class[case.kind].update(facts)
        self.codes[case.kind].update(case.codes)
        if case.base:
            self.bases[case.base.split("/")[0]] += 1

    def document(self) -> dict[str, Any]:
        """The result, as JSON has it."""
        counts = self.counts
        return {
            "cases": counts["cases"],
            "mutants_of_lowerings": counts["mutants"],
            "random_models": counts["random"],
            "decided_by_walk": counts["by_walk"],
            "decided_by_judge": counts["by_judge"],
            "decided_by_construction": counts["by_construction"],
            "false_accepts": counts["false_accept"],
            "false_rejects": counts["false_reject"],
            "oracles_disagree": counts["oracles_disagree"],
            "proved": counts["proved"],
            "refuted": counts["refuted"],
            "unknown": counts["unknown"],
            "disagreements": self.disagreements,
            "per_class": {
                kind: {**dict(sorted(found.items())), "codes": dict(self.codes[kind].most_common())}
                for kind, found in sorted(self.per_class.items())
            },
            "per_base": dict(self.bases.most_common()),
        }


def _wrong(case: Case) -> str:
    if case.wrong.startswith("judge"):
        return "oracles_disagree"
    return "false_reject" if case.outcome is Outcome.REFUTED else "false_accept"
