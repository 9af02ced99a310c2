"""assign: Tiled -> Assigned. Give every task a worker, so that each worker has the same work in every stretch."""

from __future__ import annotations

from dataclasses import dataclass

from amk.ir.buffers import Buffer, Cost
from amk.ir.passes.tile import Tiled
from amk.ir.regions import POS, TOKENS
from amk.ir.tasks import AnyKind, Attention
from amk.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A task, its id, its hop and its worker."""

    id: str
    hop: int
    worker: int
    op: AnyKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """Placed tasks in hop order; a worker's queue is its tasks in this order."""

    buffers: tuple[Buffer, ...]
    hops: tuple[str, ...]
    tasks: tuple[Placed, ...]
    workers: int
    max_context: int
    tokens_per_pass: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """Longest task first, each to the worker with the least work: in this hop, then in the step so far, then by index.

    Attention goes first to those who had least of the hop before, who are there when its last word comes: a short past
    leaves all but its first splits empty. It does not count as work of the step, for a long past has it everywhere.
    """

    def run(self, tiled: Tiled, target: Target) -> Assigned:
        """Place the tasks of ``tiled`` on the workers of ``target``. Deterministic."""
        buffers = {buffer.id: buffer for buffer in tiled.buffers}
        env = {POS: 0, TOKENS: 1}
        total = [0] * target.workers
        here = total
        placed: list[Placed] = []
        for hop, group in enumerate(tiled.hops):
            work = [_bytes(op.cost(buffers, env)) for op in group.tasks]
            if isinstance(group.tasks[0], Attention):
                workers, here = _place(work, here)
            else:
                workers, here = _place(work, total)
                total = [load + more for load, more in zip(total, here, strict=True)]
            placed += [
                Placed(id=f"{group.name}#{number}", hop=hop, worker=worker, op=op)
                for number, (op, worker) in enumerate(zip(group.tasks, workers, strict=True))
            ]
        return Assigned(
            buffers=tiled.buffers,
            hops=tuple(group.name for group in tiled.hops),
            tasks=tuple(placed),
            workers=target.workers,
            max_context=tiled.max_context,
            tokens_per_pass=tiled.tokens_per_pass,
        )


def _bytes(cost: Cost) -> int:
    return cost.stream_bytes + cost.read_bytes + cost.write_bytes


def _place(work: list[int], before: list[int]) -> tuple[list[int], list[int]]:
    """A worker for each piece of ``work``, and what each worker has of it; ``before`` decides between equals."""
    here = [0] * len(before)
    placed = [0] * len(work)
    for number in sorted(range(len(work)), key=lambda n: (-work[n], n)):
        worker = min(range(len(before)), key=lambda w: (here[w], before[w], w))
        placed[number] = worker
        here[worker] += max(1, work[number])
    return placed, here
