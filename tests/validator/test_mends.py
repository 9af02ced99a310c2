"""Mends are worth following: a schedule that lost a wait or a gate is proved again by what its findings say to add."""

from __future__ import annotations

import random
import re

from msgspec.structs import replace

from amk.ir.schedule import Schedule, Wait
from amk.validator import validate
from tests.campaign.bases import every
from tests.campaign.order import drop_gate, drop_wait, gate_to_wait, lower_threshold
from tests.campaign.parts import with_task

SMALL = [base.schedule for base in every() if len(base.schedule.tasks) < 60]
MEND = re.compile(r"add to (\S+) the (wait|gate) \((\S+), (-?\d+)\)")
ROUNDS = 6


def followed(schedule: Schedule) -> Schedule:
    """Do what the first finding with such a mend says, and again, until nothing is left to do."""
    for _ in range(ROUNDS):
        mends = [MEND.match(finding.mend) for finding in validate(schedule).findings]
        found = next((mend for mend in mends if mend), None)
        if found is None:
            break
        name, kind, counter, threshold = found.groups()
        task, extra = schedule.task[name], (Wait(counter=counter, threshold=int(threshold)),)
        if kind == "wait":
            schedule = with_task(schedule, replace(task, waits=task.waits + extra))
        else:
            streams = tuple(replace(stream, gate=stream.gate + extra) for stream in task.streams)
            schedule = with_task(schedule, replace(task, streams=streams))
    return schedule


def test_a_lost_wait_is_mended_by_what_is_said() -> None:
    refuted = mended = 0
    for seed in range(90):
        rng = random.Random(seed)
        mutant = rng.choice([drop_wait, drop_gate, gate_to_wait, lower_threshold])(rng, rng.choice(SMALL))
        if mutant is None or validate(mutant).proved:
            continue
        refuted += 1
        mended += validate(followed(mutant)).proved
    # Now and then another order than the lost one is proposed, and it cannot be had.
    assert refuted > 40
    assert mended > 0.85 * refuted, (mended, refuted)
