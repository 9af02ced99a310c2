"""The clocks against the definition: x -> y iff y is not ready in Run({x})."""

from __future__ import annotations

import random

import numpy as np
import pytest

from amk.validator.firing import run
from amk.validator.order import Order
from amk.validator.program import Program, of_model
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
