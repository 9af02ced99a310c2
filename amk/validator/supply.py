"""What must precede a wait: the componentwise K-th smallest clock over the signals of one counter.

A signal whose own queue has by then waited for K or more of the same counter cannot help a wait for K: it comes after
it. Only the others are candidates. A clock that lies below the answer for some K lies below the answers for all larger
K, so in one sweep, which asks for ever larger K, each signal is looked at only while it is near the front. That keeps
one counter for everything as cheap as one counter a hop.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from amk.validator.program import Ints, Program

Clock = npt.NDArray[np.int32]
TOP: Final = np.iinfo(np.int32).max


class Supply:
    """The signals of one counter over a window.

    Parameters
    ----------
    rows
        Instances that signal it, each as often as it does.
    passed
        Per row: the largest K of this counter for which its queue waits up to and with the row; 0 if it never does.
    """

    def __init__(self, rows: Ints, passed: Ints) -> None:
        order = np.argsort(passed, kind="stable")
        self._rows, self._passed = rows[order], passed[order]
        self._floor: Clock | None = None
        self.restart()

    def restart(self) -> None:
        """Begin a sweep: nothing is known of the clocks."""
        self._need = self._settled = self._taken = 0
        self._active = self._rows[:0]
        self._floor = None

    def before(self, need: int, clock: Clock) -> Clock:
        """The clock of a wait for ``need`` signals, given the clocks of all instances.

        While clocks still fall, an upper bound of it; once they have settled, it is exact.
        """
        candidates = int(np.searchsorted(self._passed, need, "left"))
        if need > candidates:
            return np.full(clock.shape[1], TOP, np.int32)
        if need < self._need:
            return _smallest(clock[self._rows[:candidates]], need)
        self._active = np.concatenate([self._active, self._rows[self._taken : candidates]])
        self._need, self._taken = need, candidates
        left = need - self._settled
        if left > 0 or self._floor is None:
            block = clock[self._active]
            found = _smallest(block, left)
            self._floor = found if self._floor is None else np.maximum(self._floor, found)
            below = (block <= self._floor).all(axis=1)
            self._settled += int(below.sum())
            self._active = self._active[~below]
        return self._floor


def _smallest(block: Clock, k: int) -> Clock:
    row: Clock = np.partition(block, k - 1, axis=0)[k - 1]
    return row


def supplies(program: Program, steps: int) -> list[Supply]:
    """The supply of every counter over ``steps`` steps."""
    rows: list[list[int]] = [[] for _ in program.counters]
    passed: list[list[int]] = [[] for _ in program.counters]
    for first, length in zip(program.first, program.length, strict=True):
        most: dict[int, int] = {}
        for step in range(steps):
            for task in range(first, first + length):
                for counter, threshold in program.waits[task]:
                    need = threshold + step * program.per_step[counter]
                    if need > most.get(counter, 0):
                        most[counter] = need
                for counter in program.signals[task]:
                    rows[counter].append(step * program.tasks + task)
                    passed[counter].append(most.get(counter, 0))
    return [Supply(np.array(mine, np.int64), np.array(need, np.int64)) for mine, need in zip(rows, passed, strict=True)]
