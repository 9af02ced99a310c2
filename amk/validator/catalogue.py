"""Every rule by its code."""

from __future__ import annotations

from typing import Final

from amk.errors import BadOptionError
from amk.validator.findings import Rule
from amk.validator.rules import (
    capacity,
    coverage,
    deadlock,
    expressible,
    footprint,
    kv,
    launch,
    outputs,
    race,
    reads,
    regions,
    stop,
    stream,
    structure,
    tag_order,
    tag_overwritten,
    tag_writer,
    window,
)

RULES: Final[dict[str, Rule]] = {
    rule.code: rule
    for rule in (
        race.RULE,
        deadlock.RULE,
        reads.RULE,
        coverage.RULE,
        kv.RULE,
        tag_writer.RULE,
        tag_overwritten.RULE,
        tag_order.RULE,
        outputs.RULE,
        stream.RULE,
        stop.RULE,
        capacity.RULE,
        structure.RULE,
        regions.RULE,
        footprint.RULE,
        expressible.RULE,
        launch.RULE,
        window.RULE,
    )
}


def explain(code: str) -> str:
    """The formal statement of a rule.

    Raises
    ------
    BadOptionError
        There is no rule of this code.
    """
    rule = RULES.get(code.upper()) or RULES.get(f"AMK-{code.upper()}")
    if rule is None:
        known = ", ".join(sorted(RULES))
        raise BadOptionError(option="--explain", value=code, why="no rule has this code", fix=f"use one of: {known}")
    return rule.explain()
