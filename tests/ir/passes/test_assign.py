"""assign: every task has one worker, and no worker has more to stream than another by more than one piece."""

from __future__ import annotations

from collections import Counter as Tally

import pytest

from amk.ir.graph import Graph
from amk.ir.passes.assign import Assign, Assigned
from amk.ir.passes.fuse import Fuse
from amk.ir.passes.tile import TILE_ROWS, Tile, Tiled
from amk.ir.regions import POS, TOKENS
from amk.ir.tasks import Attention, Gemv
from tests.builders import cpu_target, llama_graph

MODELS = {
    "tiny": llama_graph(),
    "9/3": llama_graph(hidden=576, layers=3, heads=9, kv_heads=3, head_dim=64, intermediate=1536, vocab=49_152),
    "7/1": llama_graph(
        hidden=112, layers=4, heads=7, kv_heads=1, head_dim=16, intermediate=200, vocab=1009, tied=False
    ),
    "5/5": llama_graph(hidden=80, layers=2, heads=5, kv_heads=5, head_dim=16, intermediate=136, vocab=32_001),
}
CONTEXT = 1024
START = {POS: 0, TOKENS: 1}

each_model = pytest.mark.parametrize("graph", MODELS.values(), ids=MODELS)
each_count = pytest.mark.parametrize("workers", [1, 2, 7, 132])


def tiled(graph: Graph, workers: int) -> Tiled:
    return Tile(max_context=CONTEXT).run(Fuse().run(graph), cpu_target(workers))


def assign(graph: Graph, workers: int) -> Assigned:
    return Assign().run(tiled(graph, workers), cpu_target(workers))


@each_model
@each_count
def test_every_task_is_placed_once_in_hop_order(graph: Graph, workers: int) -> None:
    before, after = tiled(graph, workers), assign(graph, workers)
    assert [(task.hop, task.op) for task in after.tasks] == [
        (number, op) for number, hop in enumerate(before.hops) for op in hop.tasks
    ]
    assert {task.worker for task in after.tasks} <= set(range(workers))
    assert len({task.id for task in after.tasks}) == len(after.tasks)
    assert all(task.id.startswith(f"{after.hops[task.hop]}#") for task in after.tasks)
    assert (after.buffers, after.workers) == (before.buffers, workers)
    assert (after.max_context, after.tokens_per_pass) == (before.max_context, before.tokens_per_pass)


@each_model
@each_count
def test_a_worker_has_at_most_one_gemv_of_a_hop(graph: Graph, workers: int) -> None:
    assigned = assign(graph, workers)
    gemvs = Tally((task.hop, task.worker) for task in assigned.tasks if isinstance(task.op, Gemv))
    assert set(gemvs.values()) == {1}


@each_model
@each_count
def test_attention_is_spread_evenly(graph: Graph, workers: int) -> None:
    assigned = assign(graph, workers)
    for hop in range(len(assigned.hops)):
        heads = Tally(task.worker for task in assigned.tasks if task.hop == hop and isinstance(task.op, Attention))
        if heads:
            counts = [heads[worker] for worker in range(workers)]
            assert max(counts) - min(counts) <= 1


@each_model
@each_count
def test_the_work_of_a_step_is_balanced_to_one_indivisible_piece(graph: Graph, workers: int) -> None:
    """All but attention, which a long past spreads evenly by itself."""
    assigned = assign(graph, workers)
    buffers = {buffer.id: buffer for buffer in assigned.buffers}
    load = [0] * workers
    largest = 0
    for task in assigned.tasks:
        if isinstance(task.op, Attention):
            continue
        cost = task.op.cost(buffers, START)
        moved = cost.stream_bytes + cost.read_bytes + cost.write_bytes
        load[task.worker] += moved
        # A matrix can be cut between tiles, other tasks cannot be cut.
        rows = task.op.rows[1] - task.op.rows[0] if isinstance(task.op, Gemv) else TILE_ROWS
        largest = max(largest, moved * TILE_ROWS // rows if rows > TILE_ROWS else moved)
    assert sum(load) > 0
    assert max(load) - min(load) <= largest


def test_the_first_splits_go_to_those_who_had_least_of_the_projection() -> None:
    """120 tiles of it on 132 workers: twelve have none, and take the first four splits of three KV heads."""
    assigned = assign(MODELS["9/3"], 132)
    projection = {task.worker for task in assigned.tasks if task.id.startswith("L1.qkv#")}
    attention = [task for task in assigned.tasks if task.id.startswith("L1.attention#")]
    assert len(projection) == 120
    free = {task.worker for task in attention if isinstance(task.op, Attention) and task.op.split < 4}
    assert free == set(range(132)) - projection


def test_it_is_deterministic() -> None:
    assert assign(MODELS["9/3"], 132) == assign(MODELS["9/3"], 132)
