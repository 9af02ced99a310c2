"""The mutation classes: one change to a schedule that is right.

Each takes a random generator and a schedule and gives back another one, or None where the schedule has no place for it.
Changes of what a task touches go through its parameters and derive its accesses anew, as a careful forger would; the
classes in ``illegal`` do not, and are refused whatever else they do. Here are those that change the launch; ``order``
and ``touch`` hold the others.
"""

from __future__ import annotations

import random

from msgspec.structs import replace

from amk.ir.schedule import Schedule
from tests.campaign.order import drop_gate, drop_wait, lend_signal, lower_threshold, move_task, other_signal
from tests.campaign.parts import JUDGED, Mutation, judged
from tests.campaign.touch import alias_buffers

assert alias_buffers  # its module registers its classes before those below

__all__ = ["JUDGED", "Mutation", "drift", "few_steps"]


@judged
def drift(rng: random.Random, schedule: Schedule) -> Schedule | None:
    """Warps that drift by another number of tasks, over a queue that leans on its order more than it did."""
    changed = rng.choice([drop_wait, drop_wait, lower_threshold, move_task])(rng, schedule)
    return changed and replace(changed, target=replace(changed.target, drift=rng.randint(0, 8)))


@judged
def few_steps(rng: random.Random, schedule: Schedule) -> Schedule | None:
    """One wait or signal less, in launches of so few steps that it may not matter."""
    change = rng.choice([drop_wait, lower_threshold, other_signal, lend_signal, drop_gate])
    changed = change(rng, schedule)
    return changed and replace(changed, steps_max=rng.randint(1, 3))
