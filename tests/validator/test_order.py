"""The clocks against the definition: x -> y iff y is not ready in Run({x})."""

from __future__ import annotations

import random
from itertools import accumulate

import numpy as np
import pytest
from msgspec.structs import replace

from amk.ir.schedule import Counter, Schedule, Wait
from amk.validator import validate
from amk.validator.firing import run
from amk.validator.model import of_schedule
from amk.validator.order import Order
from amk.validator.program import Program, of_model
from tests.builders import llama_graph, lower
from tests.oracle.generate import Pipeline, wild


def skeletons(count: int) -> list[Program]:
    found: list[Program] = []
    seed = 0
    while len(found) < count:
        rng = random.Random(seed)
        seed += 1
        program = of_model(Pipeline(rng).model() if seed % 2 else wild(rng))
        done = run(program, 1)
        if all(at == length for at, length in zip(done.position, program.length, strict=True)):
            found.append(program)
    return found


PROGRAMS = skeletons(60)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_clocks_are_the_relation(steps: int) -> None:
    for program in PROGRAMS:
        order = Order(program, steps, drift=0)
        rows = steps * program.tasks
        for x in range(rows):
            held = run(program, steps, withheld=frozenset({x}))
            reached = {instance for level in held.levels for instance in level}
            worker, index = program.worker[x % program.tasks], program.index[x % program.tasks]
            position = x // program.tasks * program.length[worker] + index
            for y in range(rows):
                if y != x and program.worker[y % program.tasks] != worker:
                    before = order.before_write(np.array([y]), np.array([worker]))[0] > position
                    assert before == (y not in reached), (program.names, x, y)


def with_one_counter(schedule: Schedule) -> Schedule:
    """Every hop on one counter, its thresholds adding up over the hops of a step."""
    total = list(accumulate(schedule.signals_per_step[counter.id] for counter in schedule.counters))
    upto = {counter.id: most for counter, most in zip(schedule.counters, total, strict=True)}

    def move(waits: tuple[Wait, ...]) -> tuple[Wait, ...]:
        return tuple(Wait(counter="one", threshold=upto[wait.counter] if wait.threshold else 0) for wait in waits)

    tasks = tuple(
        replace(
            task,
            waits=move(task.waits),
            signals=("one",) * len(task.signals),
            streams=tuple(replace(stream, gate=move(stream.gate)) for stream in task.streams),
        )
        for task in schedule.tasks
    )
    return replace(schedule, tasks=tasks, counters=(Counter(id="one"),))


LOWERED = lower(llama_graph(), workers=7)


@pytest.mark.parametrize("schedule", [LOWERED, with_one_counter(LOWERED)], ids=["counter-a-hop", "one-counter"])
def test_clocks_of_a_lowering(schedule: Schedule) -> None:
    assert validate(schedule).proved
    program = of_model(of_schedule(schedule))
    order = Order(program, 2, drift=0)
    every = np.arange(2 * program.tasks)
    for x in random.Random(0).sample(range(2 * program.tasks), 60):
        held = run(program, 2, withheld=frozenset({x}))
        reached = {instance for level in held.levels for instance in level}
        worker = int(program.worker[x % program.tasks])
        position = x // program.tasks * program.length[worker] + program.index[x % program.tasks]
        after = order.before_write(every, np.full(len(every), worker)) > position
        for y in every[program.worker[every % program.tasks] != worker].tolist():
            assert after[y] == (y not in reached)


def test_firing_completes_every_step() -> None:
    for program in PROGRAMS:
        done = run(program, 4)
        assert [4 * length for length in program.length] == done.position
        fired = [instance for level in done.levels for instance in level]
        assert sorted(fired) == list(range(4 * program.tasks))


def test_a_level_was_ready_together() -> None:
    for program in PROGRAMS:
        order = Order(program, 2, drift=0)
        for level in run(program, 2).levels:
            at = np.array(level)
            for other in level:
                worker = program.worker[other % program.tasks]
                position = other // program.tasks * program.length[worker] + program.index[other % program.tasks]
                rest = at[at != other]
                if len(rest):
                    assert (order.before_write(rest, np.full(len(rest), worker)) <= position).all()
