"""What is mutated: schedules that the passes make, for several models, worker counts, tilings, dtypes and memories."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from msgspec.structs import replace

from amk.ir.graph import Add, AnyOp, Graph, RMSNorm
from amk.ir.schedule import Counter, Schedule, Stream, Wait
from amk.target import TARGETS
from tests.builders import llama_graph, lower


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """A lowering. ``walked``: so small that every interleaving of it, and of most of its mutants, can be walked."""

    name: str
    schedule: Schedule
    walked: bool = False


ATOMS = {
    "one": llama_graph(hidden=4, layers=1, heads=1, kv_heads=1, head_dim=4, intermediate=4, vocab=9),
    "two": llama_graph(hidden=4, layers=2, heads=1, kv_heads=1, head_dim=4, intermediate=4, vocab=7),
    "heads": llama_graph(hidden=4, layers=1, heads=2, kv_heads=2, head_dim=2, intermediate=8, vocab=9, tied=False),
}
MODELS = {
    "mqa": llama_graph(hidden=16, layers=2, heads=2, kv_heads=1, head_dim=8, intermediate=24, vocab=19),
    "gqa": llama_graph(hidden=32, layers=2, heads=4, kv_heads=2, head_dim=8, intermediate=48, vocab=40),
    "mha": llama_graph(hidden=24, layers=2, heads=3, kv_heads=3, head_dim=8, intermediate=40, vocab=33, tied=False),
    "deep": llama_graph(hidden=16, layers=4, heads=2, kv_heads=2, head_dim=8, intermediate=16, vocab=16),
    "square": llama_graph(hidden=24, layers=3, heads=3, kv_heads=3, head_dim=8, intermediate=24, vocab=24),
}


def with_norms_behind(graph: Graph) -> Graph:
    """A norm of each layer's attention output, ahead of its addition: a hop of its own, whose tasks read whole rows."""
    ops: list[AnyOp] = []
    for op in graph.ops:
        if isinstance(op, Add) and op.b.startswith("o"):
            ops.append(RMSNorm(out=f"p{op.b}", x=op.b, gain="model.norm.weight", eps=1e-5))
            ops.append(replace(op, b=f"p{op.b}"))
        else:
            ops.append(op)
    return replace(graph, ops=tuple(ops))


MODELS["behind"] = with_norms_behind(MODELS["gqa"])
WIDE = llama_graph(hidden=128, layers=4, heads=4, kv_heads=2, head_dim=16, intermediate=256, vocab=301)
REAL = llama_graph(hidden=576, layers=2, heads=9, kv_heads=3, head_dim=64, intermediate=1536, vocab=49_152)


def drifting(schedule: Schedule, drift: int) -> Schedule:
    return replace(schedule, target=replace(schedule.target, drift=drift))


def with_one_counter(schedule: Schedule) -> Schedule:
    """Every hop on one counter, its thresholds adding up over the hops of a step."""
    total = list(accumulate(schedule.signals_per_step[counter.id] for counter in schedule.counters))
    upto = {counter.id: most for counter, most in zip(schedule.counters, total, strict=True)}

    def move(waits: tuple[Wait, ...]) -> tuple[Wait, ...]:
        return tuple(Wait(counter="one", threshold=upto[wait.counter] if wait.threshold else 0) for wait in waits)

    def gated(streams: tuple[Stream, ...]) -> tuple[Stream, ...]:
        return tuple(replace(stream, gate=move(stream.gate)) for stream in streams)

    tasks = tuple(
        replace(task, waits=move(task.waits), streams=gated(task.streams), signals=("one",) * len(task.signals))
        for task in schedule.tasks
    )
    return replace(schedule, tasks=tasks, counters=(Counter(id="one"),))


def with_tags(schedule: Schedule) -> Schedule:
    """Activations as tagged words; the counters stay, for a tag orders nothing but its own word."""
    return replace(
        schedule,
        buffers=tuple(replace(buffer, tagged=buffer.kind == "activation") for buffer in schedule.buffers),
    )


def joins_late(schedule: Schedule) -> bool:
    """Whether the step join is signalled by the tasks of its own hop alone, so that counts add up over the hops."""
    return all(task.id.startswith("head") == ("head" in task.signals) for task in schedule.tasks)


def _atoms() -> Iterator[Base]:
    for name, graph in ATOMS.items():
        for workers in (1, 2, 2, 3) if name == "one" else (1, 2):
            for splits, context in ((1, 2), (2, 3)):
                made = lower(
                    graph, workers=workers, max_context=context, tokens_per_pass=1, splits_max=splits, tagged=False
                )
                label = f"{name}/w{workers}/splits{splits}/context{context}"
                yield Base(name=label, schedule=drifting(made, workers - 1), walked=True)
                yield Base(name=f"{label}/tags", schedule=with_tags(made), walked=True)


def _small() -> Iterator[Base]:
    for number, (name, graph) in enumerate(MODELS.items()):
        for workers in (2, 3, 5, 8):
            for splits, tokens in ((1, 1), (2, 2), (4, 8)):
                bf16 = (number + workers + splits) % 2 == 0
                made = lower(
                    graph, workers=workers, splits_max=splits, tokens_per_pass=tokens, bf16_kv=bf16, tagged=False
                )
                drift = (workers + splits) % 3
                label = f"{name}/w{workers}/splits{splits}/tokens{tokens}/{'bf16' if bf16 else 'f32'}/drift{drift}"
                yield Base(name=label, schedule=drifting(made, drift))
                if splits == 2:
                    yield Base(name=f"{label}/tags", schedule=drifting(with_tags(made), drift))
                if splits == 2 and joins_late(made):
                    yield Base(name=f"{label}/one-counter", schedule=drifting(with_one_counter(made), drift))


def _large() -> Iterator[Base]:
    for workers in (12, 24):
        yield Base(name=f"wide/w{workers}", schedule=drifting(lower(WIDE, workers=workers), 1))


def _chips() -> Iterator[Base]:
    for chip in ("h200", "a100"):
        yield Base(name=f"real/{chip}", schedule=lower(REAL, TARGETS[chip], max_context=512, bf16_kv=chip == "a100"))


# How often a base of each kind is mutated: what is small is decided most often, what is large takes the longest.
SHARES = ((_atoms, 400), (_small, 585), (_large, 12), (_chips, 3))


@cache
def pool() -> tuple[tuple[tuple[Base, ...], ...], tuple[int, ...]]:
    """Bases by kind, and the share of each kind."""
    return tuple(tuple(kind()) for kind, _ in SHARES), tuple(share for _, share in SHARES)


def pick(rng: random.Random) -> Base:
    """A base; which one is in the hands of ``rng``."""
    kinds, shares = pool()
    return rng.choice(rng.choices(kinds, shares)[0])


def every() -> list[Base]:
    """All bases."""
    kinds, _ = pool()
    return [base for kind in kinds for base in kind]
