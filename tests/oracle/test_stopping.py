"""Workers stop together in every interleaving of a schedule that is proved, and the walk sees it when they do not."""

from __future__ import annotations

import random

from msgspec.structs import replace

from amk.ir.schedule import Schedule
from amk.validator import Outcome, validate
from tests.campaign.bases import every
from tests.campaign.order import drop_wait, lower_threshold, other_counter
from tests.campaign.parts import with_task
from tests.oracle.play import as_model
from tests.oracle.stopping import StopWalk

ATOMS = [base for base in every() if base.walked and len(base.schedule.queues) < 3]
STEPS = 3


def stops(schedule: Schedule) -> set[str]:
    return StopWalk(as_model(schedule), STEPS).walk()


def test_workers_stop_together() -> None:
    for base in ATOMS:
        assert not stops(base.schedule), base.name


def test_a_worker_that_does_not_wait_for_the_sampler_runs_on() -> None:
    seen: set[str] = set()
    for base in ATOMS:
        for queue in base.schedule.queues:
            if "sample#0" in queue.tasks:
                continue
            begin = base.schedule.task[queue.tasks[0]]
            mutant = with_task(base.schedule, replace(begin, waits=()))
            assert validate(mutant).outcome is Outcome.REFUTED
            seen |= stops(mutant)
    assert seen == {"apart", "stuck"}


def test_what_is_proved_stops_together() -> None:
    proved = 0
    for seed in range(200):
        rng = random.Random(seed)
        mutant = rng.choice([drop_wait, lower_threshold, other_counter])(rng, rng.choice(ATOMS).schedule)
        if mutant is not None and validate(mutant).proved:
            proved += 1
            assert not stops(mutant), seed
    assert proved > 20
