"""An estimate of when each task of a schedule runs: its queues, played against a cost model.

This is an estimate, never a measurement. It is deterministic, and these are its assumptions:

- Every worker has the same constant share of the memory bandwidth, ``bandwidth / workers``, whether or not the others
  stream. Its producer reads the streams of its queue in order at that rate. It may be as far ahead of the consumers as
  the ring holds (``stages * stage_bytes``), across tasks and steps; a gated stream is not begun before its gate opens,
  and those behind it queue. Once a task runs, the ring empties as fast as it fills.
- A task starts when its worker is free, its waits are met and the gates of its streams are open. A signal of another
  worker arrives ``target.hop_us`` after that task's end, one of the worker's own at once.
- A task ends when its last streamed byte is there, and not before its activations have moved at the worker's share.
  Multiplying costs nothing, and neither do queues in the memory system.
- A tag is a wait: a read of a tagged buffer waits for every writer of the version it names.
- Each step has the same ``pos`` and ``tokens``. Some steps are played first, so that the one reported begins with the
  ring filled as in steady state; time 0 is the end of the step before it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from amk.ir.costmodel import COUNTER, Player
from amk.ir.schedule import Schedule

WARM_UP_STEPS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """When one task runs. ``worker`` is a position in ``schedule.queues``; ``bytes`` are those it streams.

    ``wait_us`` is how long the worker stood idle before it, within the step.
    """

    task: str
    worker: int
    hop: str
    start_us: float
    end_us: float
    wait_us: float
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HopSpan:
    """The tasks of one hop together. ``wait_us`` is the mean over its tasks, ``longest_us`` the longest task."""

    hop: str
    tasks: int
    bytes: int
    start_us: float
    end_us: float
    wait_us: float
    longest_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """A task that never starts though its worker has come to it, and the wait that is never met."""

    task: str
    worker: int
    waits_for: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """One step.

    Attributes
    ----------
    spans
        By worker, each worker's in the order of its queue. Tasks that never start are missing.
    hops
        In order of their first start.
    step_us, bytes, floor_us
        Estimated time of the step, the bytes it streams, and the time those take at the chip's whole bandwidth.
    stuck
        Empty unless the schedule blocks for ever.
    """

    pos: int
    tokens: int
    spans: tuple[Span, ...]
    hops: tuple[HopSpan, ...]
    step_us: float
    bytes: int
    floor_us: float
    stuck: tuple[Stuck, ...] = ()


def hop_of(task_id: str) -> str:
    """The hop that a task belongs to, as the assign pass names tasks: ``L3.qkv#17`` is one of ``L3.qkv``."""
    return task_id.rpartition("#")[0] or task_id


def estimate(schedule: Schedule, *, pos: int, tokens: int) -> Timeline:
    """Play ``schedule`` until it is warm, and report one step; of a schedule that blocks, the step in which it does.

    Parameters
    ----------
    pos, tokens
        Rows already in the KV cache, and rows of the step.

    Raises
    ------
    UntimeableScheduleError
        The schedule names a task, counter or buffer that it does not declare, or its chip has no bandwidth.
    """
    player = Player(schedule, pos=pos, tokens=tokens, steps=WARM_UP_STEPS + 1)
    player.play()
    stuck = tuple(_stuck(player))
    blocked = [player.step_of(player.workers[found.worker]) for found in stuck]
    step = min([WARM_UP_STEPS, *blocked])
    origin = _end(player, step - 1)
    spans = tuple(_spans(player, step, origin))
    streamed = sum(span.bytes for span in spans)
    return Timeline(
        pos=pos,
        tokens=tokens,
        spans=spans,
        hops=_hops(spans),
        step_us=_end(player, step) - origin,
        bytes=streamed,
        floor_us=streamed / schedule.target.bandwidth_bytes_per_s * 1e6,
        stuck=stuck,
    )


def _stuck(player: Player) -> list[Stuck]:
    found = []
    for worker in player.workers:
        if len(worker.played) < len(worker.program):
            missing = player.missing(worker)
            assert missing is not None, "a worker sleeps only on a need that has not come"
            (name, version), count = missing
            arrived = len(player.arrived[name, version])
            what = name if version == COUNTER else f"version {version} of {name}"
            task = worker.program[len(worker.played)].id
            found.append(
                Stuck(task=task, worker=worker.index, waits_for=f"signal {count} of {what}, which gets {arrived}")
            )
    return found


def _end(player: Player, step: int) -> float:
    """When the last task of the step and of those before it ends; 0 before the first."""
    ends = [
        worker.played[: (step + 1) * len(player.queues[worker.index])][-1][1]
        for worker in player.workers
        if worker.played and step >= 0
    ]
    return max(ends, default=0.0)


def _spans(player: Player, step: int, origin: float) -> list[Span]:
    spans = []
    for worker in player.workers:
        queue = player.queues[worker.index]
        first = step * len(queue)
        played = [(0.0, origin), *worker.played[first : first + len(queue)]]
        if first and first <= len(worker.played):
            played[0] = (0.0, max(origin, worker.played[first - 1][1]))
        spans += [
            Span(
                task=task.id,
                worker=worker.index,
                hop=hop_of(task.id),
                start_us=start - origin,
                end_us=end - origin,
                wait_us=max(0.0, start - max(free, origin)),
                bytes=task.stream_bytes,
            )
            for task, ((_, free), (start, end)) in zip(queue, pairwise(played), strict=False)
        ]
    return spans


def _hops(spans: tuple[Span, ...]) -> tuple[HopSpan, ...]:
    groups: defaultdict[str, list[Span]] = defaultdict(list)
    for span in spans:
        groups[span.hop].append(span)
    hops = [
        HopSpan(
            hop=hop,
            tasks=len(group),
            bytes=sum(span.bytes for span in group),
            start_us=min(span.start_us for span in group),
            end_us=max(span.end_us for span in group),
            wait_us=sum(span.wait_us for span in group) / len(group),
            longest_us=max(span.end_us - span.start_us for span in group),
        )
        for hop, group in groups.items()
    ]
    return tuple(sorted(hops, key=lambda hop: hop.start_us))
