"""The plain model that the order rules decide: queues of nodes with accesses, waits and signals; buffers; symbols.

A Schedule is one source of it (``of_schedule``); tests write tiny ones by hand. Nothing here knows task kinds.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from amk.ir.buffers import Buffer
from amk.ir.record import Record
from amk.ir.regions import POS, TOKENS
from amk.ir.schedule import Schedule, Stream, Wait
from amk.ir.tasks import Read, Write


class Node(Record):
    """A task without its kind."""

    id: str
    reads: tuple[Read, ...] = ()
    writes: tuple[Write, ...] = ()
    streams: tuple[Stream, ...] = ()
    waits: tuple[Wait, ...] = ()
    signals: tuple[str, ...] = ()


class AccessModel(Record, dict=True):
    """One launch, as the order rules see it.

    Attributes
    ----------
    queues
        One per worker, in order.
    pos_low, tokens
        Least ``pos0``; inclusive range of m, the rows of a step.
    drift
        d of obligation V4.
    """

    buffers: tuple[Buffer, ...]
    queues: tuple[tuple[Node, ...], ...]
    max_context: int
    steps_max: int
    pos_low: int = 0
    tokens: tuple[int, int] = (1, 1)
    drift: int = 0

    @cached_property
    def buffer(self) -> dict[str, Buffer]:
        """Buffers by id."""
        return {buffer.id: buffer for buffer in self.buffers}

    @cached_property
    def written(self) -> frozenset[str]:
        """Ids of the buffers that some node writes."""
        return frozenset(write.region.buffer for node in self.nodes() for write in node.writes)

    def nodes(self) -> Iterator[Node]:
        """Every node, worker by worker in queue order."""
        for queue in self.queues:
            yield from queue


def of_schedule(schedule: Schedule) -> AccessModel:
    """The model of a schedule whose ids, queues and symbols have been found in order."""
    tokens = schedule.symbol(TOKENS)
    return AccessModel(
        buffers=schedule.buffers,
        queues=tuple(tuple(_node(schedule, name) for name in queue.tasks) for queue in schedule.queues),
        max_context=schedule.max_context,
        steps_max=schedule.steps_max,
        pos_low=schedule.symbol(POS).low,
        tokens=(tokens.low, tokens.high),
        drift=schedule.target.drift,
    )


def _node(schedule: Schedule, name: str) -> Node:
    task = schedule.task[name]
    return Node(
        id=name,
        reads=task.reads,
        writes=task.writes,
        streams=task.streams,
        waits=task.waits,
        signals=task.signals,
    )
