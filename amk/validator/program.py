"""The order skeleton of a model in numbers: tasks by worker and queue, waits, gates and signals. No data, no regions.

A task is a number in [0, N), worker by worker in queue order. An *instance* x@s is ``s * N + x``; its *position* on its
worker is ``s * length + index``. Tags become counters of their own here: a reader of a tagged word waits for one
signal of its writer, which occurs when the writer is published.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from amk.ir.schedule import Wait
from amk.validator.model import AccessModel

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Need(NamedTuple):
    """A wait in numbers: the counter's signals in this launch >= ``threshold + step * (its signals a step)``."""

    counter: int
    threshold: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """Attributes are per task unless said otherwise.

    Attributes
    ----------
    first, length
        Per worker: its first task and its number of tasks.
    gates
        The producer's waits before each of the task's streams.
    counters, per_step
        Per counter: its name, and the signals it receives in a step (n_c).
    """

    names: tuple[str, ...]
    worker: Ints
    index: Ints
    first: tuple[int, ...]
    length: tuple[int, ...]
    waits: tuple[tuple[Need, ...], ...]
    gates: tuple[tuple[tuple[Need, ...], ...], ...]
    signals: tuple[tuple[int, ...], ...]
    counters: tuple[str, ...]

    @property
    def tasks(self) -> int:
        """N, the tasks of one step."""
        return len(self.names)

    @property
    def workers(self) -> int:
        """W, the number of queues."""
        return len(self.length)

    @cached_property
    def signallers(self) -> tuple[Ints, ...]:
        """Per counter: the tasks that signal it, each as often as it does."""
        found: list[list[int]] = [[] for _ in self.counters]
        for task, signals in enumerate(self.signals):
            for counter in signals:
                found[counter].append(task)
        return tuple(np.array(tasks, np.int64) for tasks in found)

    @cached_property
    def per_step(self) -> tuple[int, ...]:
        """n_c of every counter."""
        return tuple(len(tasks) for tasks in self.signallers)

    def describe(self, task: int, step: int | None = None) -> str:
        """``name (worker 3)``, with the step if it is given."""
        at = "" if step is None else f" at step {'t' if step == 0 else f't+{step}'}"
        return f"{self.names[task]} (worker {self.worker[task]}){at}"

    def show(self, need: Need) -> str:
        """A wait as a person writes it."""
        return f"({self.counters[need.counter]}, {need.threshold})"

    def with_gates_as_waits(self) -> Program:
        """The same, each task also waiting for its own gates: it needs its data."""
        pairs = zip(self.waits, self.gates, strict=True)
        return replace(self, waits=tuple((*waits, *chain.from_iterable(gates)) for waits, gates in pairs))

    def with_tag_waits(self, edges: Iterable[tuple[int, int, int]]) -> Program:
        """The same, with a wait of reader for writer for each edge (reader, writer, lag)."""
        wanted = sorted(set(edges))
        if not wanted:
            return self
        waits = list(self.waits)
        signals = list(self.signals)
        counters = list(self.counters)
        counter_of: dict[int, int] = {}
        for reader, writer, lag in wanted:
            if writer not in counter_of:
                counter_of[writer] = len(counters)
                counters.append(f"tag of {self.names[writer]}")
                signals[writer] = (*signals[writer], counter_of[writer])
            waits[reader] = (*waits[reader], Need(counter_of[writer], 1 - lag))
        return replace(self, waits=tuple(waits), signals=tuple(signals), counters=tuple(counters))


def of_model(model: AccessModel) -> Program:
    """The skeleton of ``model``, tags left out."""
    number: dict[str, int] = {}

    def needs(waits: Iterable[Wait]) -> tuple[Need, ...]:
        return tuple(Need(number.setdefault(wait.counter, len(number)), wait.threshold) for wait in waits)

    nodes = list(model.nodes())
    lengths = tuple(len(queue) for queue in model.queues)
    firsts = np.cumsum([0, *lengths])[:-1]
    waits = tuple(needs(node.waits) for node in nodes)
    gates = tuple(tuple(needs(stream.gate) for stream in node.streams) for node in nodes)
    signals = tuple(tuple(number.setdefault(name, len(number)) for name in node.signals) for node in nodes)
    return Program(
        names=tuple(node.id for node in nodes),
        worker=np.repeat(np.arange(len(lengths)), lengths),
        index=np.concatenate([np.arange(length) for length in lengths] or [np.zeros(0, np.int64)]),
        first=tuple(int(first) for first in firsts),
        length=lengths,
        waits=waits,
        gates=gates,
        signals=signals,
        counters=tuple(number),
    )
