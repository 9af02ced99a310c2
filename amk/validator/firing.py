"""Run(X): what can happen while the publications in X do not.

    Run(X): fire greedily everything but the publications in X. A task is *ready* when every task before it in its
    queue has fired and all its waits hold; firing adds its signals. A wait (c, k) of a task at step t holds when
    the signals of c so far >= k + t * n_c.

Firing never makes a ready task unready, so the result does not depend on the order chosen. The engine is driven by
events: each firing, each signal and each wait is touched once.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from amk.validator.program import Need, Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """What Run(X) did.

    Attributes
    ----------
    levels
        Instances in a firing order; those of one level were ready together.
    position
        Per worker: how many instances of its queue fired.
    held
        Instances of X that are ready.
    value
        Per counter: signals so far.
    """

    levels: list[list[int]]
    position: list[int]
    held: frozenset[int]
    value: list[int]


class _Engine:
    def __init__(self, program: Program, steps: int) -> None:
        self.program = program
        self.per_step = program.per_step
        self.ends = [steps * length for length in program.length]
        self.position = [0] * program.workers
        self.cursor = [0] * program.workers  # waits of the head already seen to hold
        self.value = [0] * len(program.counters)
        self.sleepers: list[dict[int, list[int]]] = [{} for _ in program.counters]

    def head(self, worker: int) -> tuple[int, int]:
        """The task at the head of a queue, and its step."""
        step, index = divmod(self.position[worker], self.program.length[worker])
        return self.program.first[worker] + index, step

    def ready(self, worker: int) -> bool:
        """Whether the worker's head is ready; if it is not, the worker sleeps on the first wait that fails."""
        if self.position[worker] >= self.ends[worker]:
            return False
        task, step = self.head(worker)
        waits = self.program.waits[task]
        while self.cursor[worker] < len(waits):
            counter, threshold = waits[self.cursor[worker]]
            need = threshold + step * self.per_step[counter]
            if self.value[counter] < need:
                self.sleepers[counter].setdefault(need, []).append(worker)
                return False
            self.cursor[worker] += 1
        return True

    def fire(self, worker: int, task: int) -> list[int]:
        """Publish the head; the workers whose failing wait this made true."""
        woken: list[int] = []
        for counter in self.program.signals[task]:
            self.value[counter] += 1
            if self.sleepers[counter]:
                woken += self.sleepers[counter].pop(self.value[counter], ())
        self.position[worker] += 1
        self.cursor[worker] = 0
        return woken


def run(program: Program, steps: int, *, withheld: AbstractSet[int] = frozenset()) -> Firing:
    """Run ``steps`` steps of ``program`` without the publications ``withheld`` (instances)."""
    engine = _Engine(program, steps)
    levels: list[list[int]] = []
    held: set[int] = set()
    awake = [worker for worker in range(program.workers) if engine.ready(worker)]
    while awake:
        level: list[int] = []
        stirred: list[int] = []
        for worker in awake:
            task, step = engine.head(worker)
            instance = step * program.tasks + task
            if instance in withheld:
                held.add(instance)
                continue
            level.append(instance)
            stirred += engine.fire(worker, task)
            stirred.append(worker)
        if level:
            levels.append(level)
        awake = [worker for worker in stirred if engine.ready(worker)]
    return Firing(levels=levels, position=engine.position, held=frozenset(held), value=engine.value)


def failing(program: Program, firing: Firing, worker: int) -> tuple[int, int, list[Need]]:
    """The head at which a worker stopped, its step, and the waits of it that fail."""
    step, index = divmod(firing.position[worker], program.length[worker])
    task = program.first[worker] + index
    per_step = program.per_step
    bad = [
        need
        for need in program.waits[task]
        if firing.value[need.counter] < need.threshold + step * per_step[need.counter]
    ]
    return task, step, bad
