"""When a worker's producer may begin each stream: the clocks of sigma.

The producer walks the streams of its worker's queue in order, step after step, and makes their gates on the way. So
sigma of a stream follows its own gate and the gates of all streams before it, and nothing else: not the waits of the
tasks, nor how far the consumers have come.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from amk.validator.program import Ints, Need, Program
from amk.validator.supply import Clock

Support = Callable[[Need, int], Clock]


class Producers:
    """sigma of every stream of the window, one row per distinct state of a producer.

    Parameters
    ----------
    support
        What must precede a wait, given in numbers and with its step.
    """

    def __init__(self, program: Program, steps: int, support: Support) -> None:
        self.program = program
        self.steps = steps
        self._support = support
        counts = [len(gates) for gates in program.gates]
        self._slot: Ints = np.cumsum([0, *counts])  # of each task's first stream, in one step
        self._row = np.zeros(steps * int(self._slot[-1]), np.int64)
        self._rows: list[Clock] = [np.zeros(program.workers, np.int32)]
        self._at_end = [self._walk(worker) for worker in range(program.workers)]
        self._clock: Clock = np.stack(self._rows)

    def _walk(self, worker: int) -> Clock:
        """Fill in the streams of one worker; the state of its producer after the last."""
        first, length = self.program.first[worker], self.program.length[worker]
        state: Clock = self._rows[0]
        row = 0
        for step in range(self.steps):
            passed: set[Need] = set()
            base = step * int(self._slot[-1])
            for task in range(first, first + length):
                for number, gate in enumerate(self.program.gates[task]):
                    if fresh := [need for need in gate if need not in passed]:
                        passed.update(fresh)
                        state = np.maximum.reduce([state, *(self._support(need, step) for need in fresh)])
                        row = len(self._rows)
                        self._rows.append(state)
                    self._row[base + int(self._slot[task]) + number] = row
        return state

    def before(self, instances: Ints, number: int, workers: Ints) -> Clock:
        """Instances of each worker whose writes stream ``number`` of each instance sees."""
        step, task = np.divmod(instances, self.program.tasks)
        row = self._row[step * self._slot[-1] + self._slot[task] + number]
        clock: Clock = self._clock[row, workers]
        return clock

    def next_step(self, worker: int, mattering: frozenset[tuple[int, int]]) -> Clock | None:
        """The clock of the worker's first stream past the window that matters; None if it has none.

        ``mattering`` holds (task, number) of the streams from buffers that are written in the launch.
        """
        first, length = self.program.first[worker], self.program.length[worker]
        state: Clock = self._at_end[worker]
        for task in range(first, first + length):
            for number, gate in enumerate(self.program.gates[task]):
                for need in gate:
                    state = np.maximum(state, self._support(need, self.steps))
                if (task, number) in mattering:
                    return state
        return None
