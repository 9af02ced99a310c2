"""Order by its definition: Run({x}) for every task x of step 0 at once. It shares no code with the validator.

Run({x}) fires everything that can fire while x is never published. Firing makes nothing unready, so the greedy result
is the largest state that any interleaving reaches without x, and

    x must be published before y can begin   iff   y is not ready in Run({x}).

All runs go side by side: a column per withheld task, a row per instance, and passes over the rows until none changes.
No clocks, no fixpoint from above, no grouping: what is slow and short about it is meant to be.
"""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import Any

import numpy as np

Plain = dict[str, Any]
Edge = tuple[int, int, int]  # reader, writer, lag: a tag wait


class Runs:
    """Every Run({x}) of ``steps`` steps.

    Parameters
    ----------
    gates
        Tasks wait for the gates of their own streams too: their data must have arrived.
    tags
        Tag waits: the reader waits for the writer's publication of this step (lag 0) or of the one before.

    Attributes
    ----------
    complete
        Whether every instance fires when nothing is withheld; else there is no order to ask about.
    """

    def __init__(self, model: Plain, steps: int, *, gates: bool, tags: list[Edge]) -> None:
        self.steps = steps
        self.nodes: list[Plain] = [node for queue in model["queues"] for node in queue]
        self.tasks = len(self.nodes)
        lengths = [len(queue) for queue in model["queues"]]
        self.worker = np.repeat(np.arange(len(lengths)), lengths)
        self.index = np.concatenate([np.arange(length) for length in lengths]).astype(int)
        self.length = np.array(lengths)
        self.first = [0, *itertools.accumulate(lengths)][:-1]
        self.drift = model.get("drift", 0)
        self._number(gates, tags)
        self.unit = [0, *itertools.accumulate(len(streams) for streams in self.gates)]
        self._order = self._greedy()
        self.complete = len(self._order) == steps * self.tasks

    def _number(self, gates: bool, tags: list[Edge]) -> None:
        """Waits as (counter, threshold) and signals as counters, in numbers; a tag is a counter of its writer."""
        number: dict[str, int] = {}

        def needs(waits: Any) -> list[tuple[int, int]]:
            return [(number.setdefault(w["counter"], len(number)), w["threshold"]) for w in waits]

        self.gates = [[needs(stream.get("gate", ())) for stream in node.get("streams", ())] for node in self.nodes]
        self.waits = [needs(node.get("waits", ())) for node in self.nodes]
        self.signals = [[number.setdefault(c, len(number)) for c in node.get("signals", ())] for node in self.nodes]
        if gates:
            for waits, streams in zip(self.waits, self.gates, strict=True):
                waits += [need for gate in streams for need in gate]
        for reader, writer, lag in sorted(set(tags)):
            name = f"\0tag {writer}"
            if name not in number:
                self.signals[writer].append(number.setdefault(name, len(number)))
            self.waits[reader].append((number[name], 1 - lag))
        self.per_step = [0] * len(number)
        for signals in self.signals:
            for counter in signals:
                self.per_step[counter] += 1

    def _need(self, need: tuple[int, int], step: int) -> int:
        return need[1] + step * self.per_step[need[0]]

    def _before(self, row: int) -> int:
        """The instance ahead in the queue; -1 if there is none."""
        step, task = divmod(row, self.tasks)
        if self.index[task]:
            return row - 1
        return row - self.tasks + int(self.length[self.worker[task]]) - 1 if step else -1

    def _greedy(self) -> list[int]:
        """Instances in an order in which they fire when nothing is withheld."""
        value = [0] * len(self.per_step)
        queues = [
            [step * self.tasks + first + at for step in range(self.steps) for at in range(length)]
            for first, length in zip(self.first, self.length.tolist(), strict=True)
        ]
        at = [0] * len(queues)
        fired: list[int] = []
        stirred = True
        while stirred:
            stirred = False
            for worker, queue in enumerate(queues):
                while at[worker] < len(queue):
                    step, task = divmod(queue[at[worker]], self.tasks)
                    if any(value[need[0]] < self._need(need, step) for need in self.waits[task]):
                        break
                    for counter in self.signals[task]:
                        value[counter] += 1
                    fired.append(queue[at[worker]])
                    at[worker] += 1
                    stirred = True
        return fired

    @cached_property
    def _result(self) -> tuple[Any, Any]:
        shape = (self.steps * self.tasks, self.tasks)
        ready, fired = np.zeros(shape, bool), np.zeros(shape, bool)
        value = np.zeros((len(self.per_step), self.tasks), np.int32)
        plan = [(row, self._before(row), *divmod(row, self.tasks)) for row in self._order]
        changed = True
        while changed:
            changed = False
            for row, before, step, task in plan:
                now = fired[before].copy() if before >= 0 else np.ones(self.tasks, bool)
                for need in self.waits[task]:
                    now &= value[need[0]] >= self._need(need, step)
                ready[row] = now
                fresh = now & ~fired[row]
                if not step:
                    fresh[task] = False
                if fresh.any():
                    changed = True
                    fired[row] |= fresh
                    for counter in self.signals[task]:
                        value[counter] += fresh
        return ready, value

    @property
    def ready(self) -> Any:
        """[steps * tasks, tasks]: whether the row's instance gets ready while the column's task of step 0 is held."""
        return self._result[0]

    @property
    def value(self) -> Any:
        """[counters, tasks]: signals in the end, while the column's task of step 0 is held."""
        return self._result[1]

    def holds(self, needs: list[tuple[int, int]], step: int) -> Any:
        """Per withheld task: whether these waits ever hold."""
        held = np.ones(self.tasks, bool)
        for need in needs:
            held &= self.value[need[0]] >= self._need(need, step)
        return held

    @cached_property
    def failing(self) -> Any:
        """Per row and task of its own worker: waits up to the row that fail while the task is held."""
        total = np.zeros((self.steps * self.tasks, int(self.length.max(initial=0))), np.int32)
        for first, length in zip(self.first, self.length.tolist(), strict=True):
            mine = np.zeros(length, np.int32)
            for step in range(self.steps):
                for task in range(first, first + length):
                    if self.waits[task]:
                        mine = mine + ~self.holds(self.waits[task], step)[first : first + length]
                    total[step * self.tasks + task, :length] = mine
        return total

    @cached_property
    def begun(self) -> Any:
        """Whether each stream, numbered task by task, ever begins: it follows the gates before it and nothing else."""
        begun = np.ones((self.steps * self.unit[-1], self.tasks), bool)
        for first, length in zip(self.first, self.length.tolist(), strict=True):
            state = np.ones(self.tasks, bool)
            for step in range(self.steps):
                for task in range(first, first + length):
                    for number, gate in enumerate(self.gates[task]):
                        if gate:
                            state = state & self.holds(gate, step)
                        begun[step * self.unit[-1] + self.unit[task] + number] = state
        return begun

    @cached_property
    def _same(self) -> Any:
        return self.worker[:, None] == self.worker[None, :]

    def _apart(self, delta: int) -> Any:
        """[x, y]: how far y is behind x in their queue, if they share one."""
        return (delta * self.length[self.worker] + self.index)[None, :] - self.index[:, None]

    def _unready(self, delta: int) -> Any:
        return ~self.ready[delta * self.tasks : (delta + 1) * self.tasks].T

    @cached_property
    def _writes_after(self) -> list[Any]:
        return [np.where(self._same, self._apart(d) > 0, self._unready(d)) for d in range(self.steps)]

    @cached_property
    def _reads_after(self) -> list[Any]:
        tables = []
        every = np.arange(self.tasks)
        for delta in range(self.steps):
            apart = self._apart(delta)
            before = self.failing[every, self.index]
            waited = before[:, None] < self.failing[delta * self.tasks + every][:, self.index].T
            own = (apart > 0) & ((apart > self.drift) | waited)
            tables.append(np.where(self._same, own, self._unready(delta)))
        return tables

    # --- is x of step 0 in front of y, ``delta`` steps later? Arrays of task numbers --------------------------------

    def before_write(self, x: Any, y: Any, delta: int) -> Any:
        """All of x before the writes of y."""
        return self._writes_after[delta][x, y]

    def before_read(self, x: Any, y: Any, delta: int) -> Any:
        """The writes of x before the reads of y: on one worker, warps drift."""
        return self._reads_after[delta][x, y]

    def before_stream(self, x: Any, y: Any, number: Any, delta: int) -> Any:
        """The writes of x before stream ``number`` of y begins."""
        return ~self.begun[delta * self.unit[-1] + np.array(self.unit)[y] + number, x]


def joined(runs: Runs, *, data: bool, streams: list[tuple[int, int]]) -> bool:
    """Whether no worker begins step D while another has not ended step 0, D being the steps of ``runs``.

    Each worker's last task of step 0 is withheld in turn, and the heads and streams of step D are looked at: they are
    ready only by the signals of the steps before, for nothing of step D fires.

    Parameters
    ----------
    data
        Warps that drift matter, as they do for what is read untagged.
    streams
        Those, as (task, number), whose beginning matters.
    """
    busy = np.flatnonzero(runs.length).tolist()
    withheld = np.array([runs.first[worker] + int(runs.length[worker]) - 1 for worker in busy])
    for worker in busy:
        if _stream_begins(runs, worker, withheld, streams):
            return False
        head = runs.first[worker]
        last = (runs.steps - 1) * runs.tasks + head + int(runs.length[worker]) - 1
        held = runs.holds(runs.waits[head], runs.steps)[withheld]
        other = runs.worker[withheld] != worker
        if (held & other & runs.ready[last, withheld]).any():
            return False
        own = withheld[~other]
        apart = runs.steps * int(runs.length[worker]) - runs.index[own]
        waited = runs.failing[last, runs.index[own]] > runs.failing[own, runs.index[own]]
        if data and (held[~other] & (apart <= runs.drift) & ~waited).any():
            return False
    return True


def _stream_begins(runs: Runs, worker: int, withheld: Any, streams: list[tuple[int, int]]) -> bool:
    """Whether a stream of step D that matters begins on ``worker`` with one of these withheld."""
    tasks = range(runs.first[worker], runs.first[worker] + int(runs.length[worker]))
    units = [(task, number) for task in tasks for number in range(len(runs.gates[task]))]
    if not units:
        return False
    task, number = units[-1]
    state = runs.begun[(runs.steps - 1) * runs.unit[-1] + runs.unit[task] + number][withheld]
    for task, number in units:
        state = state & runs.holds(runs.gates[task][number], runs.steps)[withheld]
        if (task, number) in streams and state.any():
            return True
    return False
