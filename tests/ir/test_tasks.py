"""Task kinds: what each declares to read, write and stream, spelled out; and what it costs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from amk.ir.buffers import Buffer, Cost
from amk.ir.regions import concrete, show_region
from amk.ir.schedule import Schedule, Task
from amk.ir.tasks import Attention, Gemv, Read, Sample, Write
from tests.builders import EMBEDDING, llama_graph, lower

GRAPH = llama_graph(hidden=64, layers=2, heads=4, kv_heads=2, head_dim=16, intermediate=96, vocab=97)
ONE, MANY = lower(GRAPH, workers=1), lower(GRAPH, workers=6)
ENV = {"pos": 40, "tokens": 3}


def spell(accesses: Sequence[Read | Write]) -> list[str]:
    """``buffer[box] version``, and ``'`` behind a version of the step before."""
    return [f"{show_region(a.region)} v{a.version}{chr(39) * getattr(a, 'lag', 0)}" for a in accesses]


def declared(task: Task) -> tuple[list[str], list[str], list[str]]:
    return spell(task.reads), spell(task.writes), [show_region(stream.region) for stream in task.streams]


DECLARED = {
    "begin#0": (["stop[0:1] v0'"], [], []),
    "L0.qkv#0": (
        ["hidden[0:tokens, 0:64] v4'", "model.layers.0.input_layernorm.weight[0:64] v0"],
        ["qkv[0:tokens, 0:24] v0"],
        ["L0.qkv.weight[0:24, 0:64]"],
    ),
    "L1.attention#1": (
        [
            "qkv[0:tokens, 32:64] v1",
            "qkv[0:tokens, 80:96] v1",
            "qkv[0:tokens, 112:128] v1",
            "rope[pos:pos+tokens, 0:2, 0:8] v0",
        ],
        [
            "L1.attn[0:1, 0:tokens, 32:64] v0",
            "L1.attn_stats[0:1, 0:tokens, 2:4, 0:2] v0",
            "L1.k_cache[1:2, pos:pos+tokens, 0:16] v0",
            "L1.v_cache[1:2, pos:pos+tokens, 0:16] v0",
        ],
        ["L1.k_cache[1:2, 0:pos, 0:16]", "L1.v_cache[1:2, 0:pos, 0:16]"],
    ),
    "L1.attention#4": (
        ["qkv[0:tokens, 0:32] v1", "rope[pos:pos+tokens, 0:2, 0:8] v0"],
        ["L1.attn[2:3, 0:tokens, 0:32] v0", "L1.attn_stats[2:3, 0:tokens, 0:2, 0:2] v0"],
        ["L1.k_cache[0:1, 0:pos, 0:16]", "L1.v_cache[0:1, 0:pos, 0:16]"],
    ),
    "L0.o#5": (
        ["L0.attn[0:3, 0:tokens, 0:64] v0", "L0.attn_stats[0:3, 0:tokens, 0:4, 0:2] v0", "hidden[0:tokens, 56:64] v4'"],
        ["hidden[0:tokens, 56:64] v0"],
        ["model.layers.0.self_attn.o_proj.weight[56:64, 0:64]"],
    ),
    "L0.gate_up#1": (
        ["hidden[0:tokens, 0:64] v0", "model.layers.0.post_attention_layernorm.weight[0:64] v0"],
        ["mlp[0:tokens, 16:32] v0"],
        ["L0.gate_up.weight[32:64, 0:64]"],
    ),
    "L1.down#0": (
        ["mlp[0:tokens, 0:96] v1", "hidden[0:tokens, 0:16] v2"],
        ["hidden[0:tokens, 0:16] v3"],
        ["model.layers.1.mlp.down_proj.weight[0:16, 0:96]"],
    ),
    "head#5": (
        ["hidden[tokens-1:tokens, 0:64] v3", "model.norm.weight[0:64] v0", "prompt_length[0:1] v0"],
        ["logits[88:97] v0", "best_value[5:6] v0", "best_index[5:6] v0"],
        [f"{EMBEDDING}[88:97, 0:64]"],
    ),
    "sample#0": (
        [
            "best_value[0:6] v0",
            "best_index[0:6] v0",
            "prompt[0:64] v0",
            "prompt_length[0:1] v0",
            "eos[0:16] v0",
            f"{EMBEDDING}[0:97, 0:64] v0",
        ],
        ["token[pos+tokens:pos+tokens+1] v0", "stop[0:1] v0", "hidden[0:tokens, 0:64] v4"],
        [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "expected"), DECLARED.items(), ids=DECLARED)
def test_what_a_task_declares(name: str, expected: tuple[list[str], list[str], list[str]]) -> None:
    assert declared(MANY.task[name]) == expected


def test_attention_in_one_split_writes_a_finished_vector() -> None:
    reads, writes, _ = declared(ONE.task["L0.attention#1"])
    assert reads[0] == "qkv[0:tokens, 32:64] v0"
    assert writes[0] == "L0.attn[0:tokens, 32:64] v0"
    assert not any("attn_stats" in access for access in writes)
    assert declared(ONE.task["L0.o#0"])[0] == ["L0.attn[0:tokens, 0:64] v0", "hidden[0:tokens, 0:64] v4'"]


@pytest.mark.parametrize("schedule", [ONE, MANY, lower(GRAPH, workers=40)], ids=["1", "6", "40"])
def test_the_tasks_of_a_step_write_every_word_once(schedule: Schedule) -> None:
    """Each version of each buffer that is written in a step is written whole, once (KV: the step's new rows)."""
    for tokens in (1, 3, 8):
        env = {"pos": 40, "tokens": tokens}
        written: dict[tuple[str, int], set[tuple[int, ...]]] = {}
        for task in schedule.tasks:
            for write in task.writes:
                points = written.setdefault((write.region.buffer, write.version), set())
                fresh = points_of(concrete(write.region.box, env))
                assert not points & fresh, f"{task.id} writes {show_region(write.region)} again"
                points |= fresh
        for (name, _), points in written.items():
            assert len(points) == words(schedule.buffer[name], tokens), name
        versions = {(name, version) for name, version in written if schedule.buffer[name].versions > 1}
        assert versions == {(b.id, v) for b in schedule.buffers if b.versions > 1 for v in range(b.versions)}


def points_of(box: tuple[tuple[int, int], ...]) -> set[tuple[int, ...]]:
    points: set[tuple[int, ...]] = {()}
    for low, high in box:
        points = {(*point, index) for point in points for index in range(low, high)}
    return points


def words(buffer: Buffer, tokens: int) -> int:
    """Words of ``buffer`` that a step of ``tokens`` rows is to write."""
    if buffer.id == "token":
        return 1
    rows_axis = {"hidden": 0, "qkv": 0, "mlp": 0, "attn": -2, "attn_stats": 1}.get(buffer.id.split(".")[-1])
    if buffer.kind == "kv":
        rows_axis = 1
    total = 1
    for axis, size in enumerate(buffer.shape):
        is_rows = rows_axis is not None and axis == rows_axis % len(buffer.shape)
        total *= tokens if is_rows else size
    return total


def test_reads_stay_inside_their_buffers() -> None:
    schedule = MANY
    for pos, tokens in ((0, 1), (0, 8), (63, 1), (56, 8)):
        for task in schedule.tasks:
            regions = [access.region for access in (*task.reads, *task.writes)]
            for region in [*regions, *(stream.region for stream in task.streams)]:
                sides = concrete(region.box, {"pos": pos, "tokens": tokens})
                shape = schedule.buffer[region.buffer].shape
                assert len(sides) == len(shape)
                assert all(0 <= low <= high <= size for (low, high), size in zip(sides, shape, strict=True))


# --- cost ------------------------------------------------------------------------------------------------------------


def test_the_cost_of_a_matrix() -> None:
    task = MANY.task["L0.gate_up#1"].op
    assert task.cost(MANY.buffer, ENV) == Cost(
        stream_bytes=32 * 64 * 2,
        read_bytes=(3 * 64 + 64) * 4,
        write_bytes=3 * 16 * 4,
        macs=32 * 64 * 3,
    )


def test_the_head_multiplies_one_row() -> None:
    task = MANY.task["head#5"].op
    assert isinstance(task, Gemv)
    assert task.macs(ENV) == 9 * 64


def test_the_cost_of_attention_in_one_split() -> None:
    task = ONE.task["L0.attention#0"].op
    cost = task.cost(ONE.buffer, ENV)
    assert cost.stream_bytes == 2 * 40 * 16 * 4
    assert cost.read_bytes == 4 * (3 * (32 + 16 + 16) + 3 * 2 * 8)
    assert cost.write_bytes == 4 * 3 * (32 + 16 + 16)
    assert cost.macs == 2 * 32 * 3 * (40 + 3)


@pytest.mark.parametrize("pos", [0, 1, 256, 257, 600, 5000])
def test_the_splits_of_a_head_stream_its_past_once(pos: int) -> None:
    env = {"pos": pos, "tokens": 3}
    tasks = [MANY.task[f"L0.attention#{2 * split}"].op for split in range(3)]
    assert sum(task.cost(MANY.buffer, env).stream_bytes for task in tasks) == 2 * pos * 16 * 4
    assert sum(task.macs(env) for task in tasks) == 2 * 32 * 3 * (pos + 3)


def test_bf16_kv_streams_half_the_bytes() -> None:
    narrow = lower(GRAPH, workers=1, bf16_kv=True)
    full, half = (s.task["L0.attention#0"].op.cost(s.buffer, ENV).stream_bytes for s in (ONE, narrow))
    assert half * 2 == full


def test_the_sampler_touches_one_row_of_the_table_a_token() -> None:
    task = MANY.task["sample#0"].op
    assert isinstance(task, Sample)
    cost = task.cost(MANY.buffer, ENV)
    assert cost.read_bytes < 2 * (3 * 64 * 2)
    assert cost.write_bytes == 3 * 64 * 4 + 8


def test_columns_of_a_query_group() -> None:
    task = ONE.task["L0.attention#1"].op
    assert isinstance(task, Attention)
    assert (task.q_heads, task.q_columns, task.k_columns, task.v_columns) == ((2, 4), (32, 64), (80, 96), (112, 128))
    alone = replace(task, heads=7, kv_heads=1, kv_head=0, head_dim=32)
    assert (alone.q_heads, alone.q_columns) == ((0, 7), (0, 224))
    assert (alone.k_columns, alone.v_columns) == ((224, 256), (256, 288))
