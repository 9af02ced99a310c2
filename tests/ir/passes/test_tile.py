"""tile: hops to tasks. The cuts cover every row once, in whole tiles, as evenly as tiles allow."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from amk.errors import BadOptionError
from amk.ir.buffers import Operand, Source
from amk.ir.graph import Graph
from amk.ir.hops import GemvHop
from amk.ir.passes.fuse import Fuse
from amk.ir.passes.tile import EOS_SLOTS, Tile, Tiled, pieces
from amk.ir.tasks import AddResidual, Argmax, Attention, GatedMul, Gemv, MergeSplits, Norm, Sample, Store
from tests.builders import EMBEDDING, cpu_target, llama_graph

rows_and_workers = st.tuples(st.integers(1, 40_000), st.integers(1, 200))


def tile(graph: Graph, *, workers: int = 4, **options: object) -> Tiled:
    return Tile(max_context=64, **options).run(Fuse().run(graph), cpu_target(workers))


def hop(tiled: Tiled, name: str) -> tuple:
    return next(hop.tasks for hop in tiled.hops if hop.name == name)


def sizes(cuts: list[tuple[int, int]]) -> list[int]:
    return [high - low for low, high in cuts]


# --- pieces ----------------------------------------------------------------------------------------------------------


@given(rows_and_workers, st.sampled_from([1, 2, 8, 16]))
def test_pieces(rows_workers: tuple[int, int], tile_rows: int) -> None:
    rows, workers = rows_workers
    cuts = pieces(rows, workers, tile_rows=tile_rows)
    assert cuts[0][0] == 0
    assert cuts[-1][1] == rows
    assert all(high == low for (_, high), (low, _) in pairwise(cuts)), "each begins where the one before ends"
    assert min(sizes(cuts)) > 0
    assert all(low % tile_rows == 0 for low, _ in cuts), "only the last may end within a tile"

    tiles = [-(-size // tile_rows) for size in sizes(cuts)]
    assert len(cuts) == min(workers, sum(tiles))
    assert sum(tiles) == -(-rows // tile_rows), "no tile is cut"
    assert max(tiles) - min(tiles) <= 1
    assert tiles == sorted(tiles, reverse=True)


@pytest.mark.parametrize(
    ("rows", "workers", "cuts"),
    [
        (1, 132, [(0, 1)]),
        (8, 132, [(0, 8)]),
        (9, 132, [(0, 8), (8, 9)]),
        (24, 2, [(0, 16), (16, 24)]),
        (32, 1, [(0, 32)]),
        (97, 4, [(0, 32), (32, 56), (56, 80), (80, 97)]),
    ],
)
def test_pieces_of_a_few_rows(rows: int, workers: int, cuts: list[tuple[int, int]]) -> None:
    assert pieces(rows, workers) == cuts


@pytest.mark.parametrize("vocab", [32_001, 49_153, 32_003, 131_071])
def test_odd_vocabularies(vocab: int) -> None:
    cuts = pieces(vocab, 132)
    assert len(cuts) == 132
    assert sum(sizes(cuts)) == vocab
    assert max(sizes(cuts)) - min(sizes(cuts)) <= 16 - vocab % 8


# --- splits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kv_heads", "width", "workers", "splits_max", "expected"),
    [
        (3, 576, 132, 4, 4),
        (3, 576, 132, 16, 16),
        (8, 2048, 132, 16, 16),
        (8, 4096, 132, 16, 8),
        (8, 65536, 132, 16, 1),
        (3, 192, 7, 4, 2),
        (2, 128, 7, 4, 3),
        (3, 192, 4, 4, 1),
        (5, 320, 2, 4, 1),
        (1, 64, 2, 4, 2),
        (3, 576, 132, 1, 1),
    ],
)
def test_splits(kv_heads: int, width: int, workers: int, splits_max: int, expected: int) -> None:
    assert Tile(max_context=64, splits_max=splits_max).splits(kv_heads, width, cpu_target(workers)) == expected


# --- tasks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 7, 132])
@pytest.mark.parametrize("vocab", [97, 1009])
def test_each_hop_covers_its_rows_once(workers: int, vocab: int) -> None:
    graph = llama_graph(vocab=vocab)
    for fused, tiled in zip(Fuse().run(graph).hops, tile(graph, workers=workers).hops, strict=True):
        assert tiled.name == fused.name
        gemvs = [task for task in tiled.tasks if isinstance(task, Gemv)]
        if not gemvs:
            continue
        assert [task.rows for task in gemvs] == pieces(fused.rows, workers)
        assert {task.k for task in gemvs} == {fused.k}
        assert len({task.weight for task in gemvs}) == 1


@pytest.mark.parametrize(("workers", "splits"), [(1, 1), (4, 2), (132, 16)])
def test_attention_is_a_task_a_head_and_split(workers: int, splits: int) -> None:
    tiled = tile(llama_graph(heads=4, kv_heads=2), workers=workers)
    tasks = hop(tiled, "L1.attention")
    assert [(task.kv_head, task.split) for task in tasks] == [(h, s) for s in range(splits) for h in range(2)]
    assert {task.splits for task in tasks} == {splits}
    assert all(isinstance(task, Attention) and (task.stats is None) == (splits == 1) for task in tasks)
    prologues = {task.prologue for task in hop(tiled, "L1.o")}
    merge = MergeSplits(stats=Operand(buffer="L1.attn_stats"), splits=splits, heads=4)
    assert prologues == {None if splits == 1 else merge}


def test_prologues_and_epilogues_of_a_layer() -> None:
    tiled = tile(llama_graph(), workers=3)
    for name, prologue, epilogue in (
        ("L0.qkv", Norm, Store),
        ("L0.gate_up", Norm, GatedMul),
        ("L0.o", type(None), AddResidual),
        ("L0.down", type(None), AddResidual),
        ("head", Norm, Argmax),
    ):
        for task in hop(tiled, name):
            assert isinstance(task.prologue, prologue), name
            assert isinstance(task.epilogue, epilogue), name
            assert task.x_rows == ("last" if name == "head" else "all")


def test_the_residual_stream_is_one_buffer_of_many_versions() -> None:
    tiled = tile(llama_graph(layers=2), workers=1)
    (qkv,), (o,), (gate_up,), (down,) = (hop(tiled, f"L0.{name}") for name in ("qkv", "o", "gate_up", "down"))
    embedded = Operand(buffer="hidden", version=4, lag=1)
    first, second = Operand(buffer="hidden", version=0), Operand(buffer="hidden", version=1)
    assert qkv.x == embedded
    assert o.epilogue == AddResidual(residual=embedded, out=first)
    assert gate_up.x == first
    assert down.epilogue == AddResidual(residual=first, out=second)
    assert hop(tiled, "L1.qkv")[0].x == second
    assert hop(tiled, "head")[0].x == Operand(buffer="hidden", version=3)
    (sample,) = hop(tiled, "sample")
    assert sample.next_hidden == Operand(buffer="hidden", version=4)
    assert next(buffer for buffer in tiled.buffers if buffer.id == "hidden").versions == 5


def test_each_slot_of_the_argmax_has_one_task() -> None:
    tiled = tile(llama_graph(vocab=97), workers=5)
    tasks = hop(tiled, "head")
    assert [task.epilogue.slot for task in tasks] == list(range(5))
    (sample,) = hop(tiled, "sample")
    assert isinstance(sample, Sample)
    assert sample.slots == 5


def test_buffers() -> None:
    graph = llama_graph(hidden=64, layers=2, heads=4, kv_heads=2, head_dim=16, intermediate=96, vocab=97, tied=False)
    tiled = tile(graph, workers=4, tokens_per_pass=3, kv_dtype="bf16")
    buffers = {buffer.id: buffer for buffer in tiled.buffers}
    assert len(buffers) == len(tiled.buffers)
    shapes = {name: buffer.shape for name, buffer in buffers.items() if buffer.kind not in {"weight", "const", "kv"}}
    assert shapes == {
        "hidden": (3, 64),
        "qkv": (3, 128),
        **{f"L{layer}.attn": (2, 3, 64) for layer in range(2)},
        **{f"L{layer}.attn_stats": (2, 3, 4, 2) for layer in range(2)},
        "mlp": (3, 96),
        "logits": (97,),
        "best_value": (4,),
        "best_index": (4,),
        "prompt": (64,),
        "prompt_length": (1,),
        "eos": (EOS_SLOTS,),
        "token": (65,),
        "stop": (1,),
    }
    caches = {name: buffer for name, buffer in buffers.items() if buffer.kind == "kv"}
    assert set(caches) == {f"L{i}.{part}_cache" for i in range(2) for part in "kv"}
    assert {(buffer.shape, buffer.dtype) for buffer in caches.values()} == {((2, 64, 16), "bf16")}
    assert buffers["rope"].shape == (64, 2, 8)
    assert buffers["L1.gate_up.weight"].source == Source(
        tensors=("model.layers.1.mlp.gate_proj.weight", "model.layers.1.mlp.up_proj.weight"), arrange="interleave"
    )
    assert buffers["L1.gate_up.weight"].shape == (192, 64)


@pytest.mark.parametrize(
    ("words", "k_chunk", "tagged"),
    [
        (8192, 4096, {"hidden", "qkv", "mlp"}),
        (128, 4096, {"hidden", "qkv"}),
        (100, 4096, {"hidden"}),
        (63, 4096, set()),
        (0, 4096, set()),
        # Of a row that is staged in chunks several tiles may be stored before the last is multiplied.
        (8192, 32, set()),
    ],
)
def test_narrow_rows_are_tagged(words: int, k_chunk: int, tagged: set[str]) -> None:
    graph = llama_graph(hidden=64, layers=2, heads=4, kv_heads=2, head_dim=16, intermediate=136)
    target = replace(cpu_target(2), k_chunk=k_chunk)
    tiled = Tile(max_context=64, tagged_words=words).run(Fuse().run(graph), target)
    assert {buffer.id for buffer in tiled.buffers if buffer.tagged} == tagged
    # A plain activation between tagged ones is each layer's own; where all are plain, the layers share them.
    assert ("L1.attn" in {buffer.id for buffer in tiled.buffers}) == bool(tagged)


def test_a_norm_that_is_no_scale_of_the_product_leaves_all_rows_plain() -> None:
    program = Fuse().run(llama_graph())
    centred = dataclasses.replace(
        program,
        hops=tuple(
            dataclasses.replace(hop, norm=dataclasses.replace(hop.norm, centred=True))
            if isinstance(hop, GemvHop) and hop.norm
            else hop
            for hop in program.hops
        ),
    )
    assert any(buffer.tagged for buffer in Tile(max_context=64).run(program, cpu_target(2)).buffers)
    assert not any(buffer.tagged for buffer in Tile(max_context=64).run(centred, cpu_target(2)).buffers)


@pytest.mark.parametrize("tied", [True, False])
def test_every_checkpoint_tensor_is_read_once(tied: bool) -> None:
    graph = llama_graph(tied=tied)
    buffers = [buffer for buffer in tile(graph).buffers if isinstance(buffer.source, Source)]
    named = [name for buffer in buffers for name in buffer.source.tensors]
    assert sorted(named) == [tensor.name for tensor in graph.tensors]
    tables = [buffer for buffer in buffers if EMBEDDING in buffer.source.tensors]
    assert [buffer.layout for buffer in tables] == ["gemv8x32" if tied else "plain"]


@pytest.mark.parametrize(
    "options",
    [
        {"max_context": 0},
        {"tokens_per_pass": 0},
        {"splits_max": 0},
        {"max_context": 4, "tokens_per_pass": 5},
        {"tagged_words": -1},
        {"tagged_words": 2**20 + 1},
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(BadOptionError, match="out of range"):
        Tile(**{"max_context": 64, **options})
