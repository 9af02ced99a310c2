"""The constants of a kernel: what they are for a schedule, and that they fit the chip."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from amk.codegen.config import RUN_ROWS_MAX, RUN_STRIPS_MAX, WORK_ALIGN, KernelConfig, kernel_config
from amk.codegen.encode import stored_bytes
from amk.codegen.errors import NotGeneratableError
from amk.ir.schedule import Schedule
from amk.target import TARGETS, resolve_target
from amk.validator import certify
from amk.validator.limits import SUMS_BYTES
from tests.builders import llama_graph, lower
from tests.codegen.shapes import ARCHS, SHAPES, scheduled

every_kernel = pytest.mark.parametrize(
    "schedule",
    [
        pytest.param((shape, arch, bf16, tokens), id=f"{shape}-{arch}-{'bf16' if bf16 else 'f32'}-{tokens}")
        for shape in SHAPES
        for arch in ARCHS
        for bf16 in (False, True)
        for tokens in (1, 8)
    ],
    indirect=True,
)


@pytest.fixture
def schedule(request: pytest.FixtureRequest) -> Schedule:
    shape, arch, bf16, tokens = request.param
    return scheduled(shape, arch, bf16_kv=bf16, tokens=tokens)


def strip_bytes(config: KernelConfig) -> int:
    """Of a strip: weights, greatest scores and sums of all sets of queries, and values."""
    sets, slices = -(-config.group * config.tokens_max // 8), -(-config.head_dim // 16)
    return sets * (512 + 8 * 8) + slices * 512


def attention_bytes(config: KernelConfig) -> int:
    """Of a step of several rows: q and a run of strips, and what stands beside them; aligned."""
    rows = (config.group + 2) * config.tokens_max * config.head_stride
    return 4 * (rows + 2 * config.tokens_max) + config.run_strips * strip_bytes(config) + 32


def early_bytes(config: KernelConfig) -> int:
    """Of a step of one row, before the warps first meet: the step's own rows, q, and values of a run of strips."""
    rows = (config.group + 2 * config.tokens_max) * config.head_stride
    slices = -(-config.head_dim // 16)
    return 4 * (rows + 2 * config.tokens_max) + config.run_strips * slices * 512 + 32


@every_kernel
def test_shared_memory_fits_and_is_used(schedule: Schedule) -> None:
    target, config = schedule.target, kernel_config(schedule)
    ring = config.stages * config.stage_bytes
    assert ring + config.work_bytes < config.shared_bytes <= target.shared_memory_bytes
    sums = config.consumer_warps * config.tokens_max * SUMS_BYTES
    assert attention_bytes(config) <= config.work_bytes + sums
    assert early_bytes(config) <= config.work_bytes
    assert config.work_bytes % WORK_ALIGN == 0
    stage_rows = min(config.stage_bytes // (config.head_stride * config.kv_bytes), RUN_ROWS_MAX)
    assert 1 <= config.past_rows <= stage_rows
    assert config.run_rows % config.past_rows == 0
    assert config.past_rows <= config.run_rows <= RUN_ROWS_MAX
    assert 1 <= config.run_strips <= RUN_STRIPS_MAX
    # Fewer strips are taken only where one more would not fit.
    if config.run_strips < RUN_STRIPS_MAX:
        room = sums + config.work_bytes + target.shared_memory_bytes - config.shared_bytes
        late = attention_bytes(config) + strip_bytes(config) > room - WORK_ALIGN
        assert late or early_bytes(config) + -(-config.head_dim // 16) * 512 > room - sums - WORK_ALIGN


@every_kernel
def test_cached_rows_can_be_copied(schedule: Schedule) -> None:
    config = kernel_config(schedule)
    row_bytes = config.head_stride * config.kv_bytes
    assert row_bytes % 16 == 0
    assert 0 <= row_bytes - config.head_dim * config.kv_bytes < 16
    assert config.past_rows * row_bytes <= config.stage_bytes


@pytest.mark.parametrize("bf16", [False, True])
def test_the_constants_of_a_real_shape(bf16: bool) -> None:
    config = kernel_config(scheduled("smollm2", "sm_90", bf16_kv=bf16))
    assert (config.head_dim, config.head_stride, config.group, config.tokens_max) == (64, 64, 3, 8)
    assert config.kv_bytes == (2 if bf16 else 4)
    assert config.past_rows == config.stage_bytes // (64 * config.kv_bytes)
    assert config.run_rows == RUN_ROWS_MAX
    assert config.run_strips == RUN_STRIPS_MAX
    assert config.threads == 32 * (config.consumer_warps + 1)


def test_one_kernel_serves_every_depth_and_context() -> None:
    one, other = llama_graph(layers=2), llama_graph(layers=5)
    target = resolve_target(arch="sm_90", target=None)
    assert kernel_config(lower(one, target)) == kernel_config(lower(other, target, max_context=512))


def test_a_cap_below_a_stage_is_one_copy() -> None:
    schedule = scheduled("smollm2", "sm_90")
    config = kernel_config(replace(schedule, target=replace(schedule.target, in_flight_bytes=512)))
    assert config.in_flight_bytes == config.stage_bytes


@pytest.mark.parametrize("change", [{"shared_memory_bytes": 48 * 1024}, {"stages": 24}], ids=["chip", "ring"])
def test_what_does_not_fit_is_refused_by_name(change: dict[str, int]) -> None:
    schedule = scheduled("llama-8b", "sm_120")
    with pytest.raises(NotGeneratableError, match="shared memory that the ring of rtx5090 leaves"):
        kernel_config(replace(schedule, target=replace(schedule.target, **change)))


def test_a_ring_of_one_stage_is_refused() -> None:
    """Attention holds a piece of keys while it stages one of values."""
    schedule = scheduled("smollm2", "sm_90")
    with pytest.raises(NotGeneratableError, match="a ring of one stage"):
        kernel_config(replace(schedule, target=replace(schedule.target, stages=1)))


@pytest.mark.parametrize("bf16", [False, True], ids=["f32", "bf16"])
@pytest.mark.parametrize(("heads", "head_dim"), [(7, 128), (2, 256), (14, 64)])
def test_many_queries_of_long_heads_fit_the_smallest_chip(heads: int, head_dim: int, bf16: bool) -> None:
    graph = llama_graph(hidden=64, heads=heads, kv_heads=1, head_dim=head_dim)
    config = kernel_config(lower(graph, resolve_target(arch="sm_120", target=None), bf16_kv=bf16, tokens_per_pass=8))
    assert config.tokens_max == 8
    assert config.run_strips >= 1


def test_a_cached_row_longer_than_a_stage_is_refused() -> None:
    schedule = scheduled("llama-8b", "sm_90")
    target = replace(schedule.target, stage_bytes=256, stages=64)
    with pytest.raises(NotGeneratableError, match="of 128 in the"):
        kernel_config(replace(schedule, target=target))


@pytest.mark.parametrize("name", [name for name, target in TARGETS.items() if target.arch in ARCHS])
def test_every_chip_of_the_list_has_room(name: str) -> None:
    target = TARGETS[name]
    schedule = certify(lower(llama_graph(**SHAPES["smollm2"]), target)).schedule
    assert kernel_config(schedule).shared_bytes <= target.shared_memory_bytes


def test_a_product_that_would_store_words_before_it_has_read_all_is_refused() -> None:
    """Rows of 4,096 columns are staged in chunks, anew for each group of tiles."""
    schedule = scheduled("llama-8b", "sm_90")
    assert not any(buffer.tagged for buffer in schedule.buffers)
    tagged = tuple(replace(b, tagged=True) if b.id in {"hidden", "qkv"} else b for b in schedule.buffers)
    with pytest.raises(NotGeneratableError, match=r"L0\.qkv#\d+, which would store tagged words before"):
        kernel_config(replace(schedule, buffers=tagged))


TAGGED_FROM = {"a100": 2, "a100-80gb": 2, "h100-pcie": 2, "h100-sxm": 1, "h200": 1}
"""Chips whose workers store all their tiles of 2,048 rows at once, and the rows a step from which they do."""


@pytest.mark.parametrize("tokens", [1, 2, 8])
@pytest.mark.parametrize("chip", sorted(name for name, target in TARGETS.items() if target.arch != "cpu"))
def test_what_the_tile_pass_tags_has_a_kernel(chip: str, tokens: int) -> None:
    """Its down projection is read in chunks: its words are tagged where a worker stores all its tiles at once."""
    graph = llama_graph(hidden=2048, layers=1, heads=32, kv_heads=8, head_dim=64, intermediate=8192, vocab=512)
    schedule = lower(graph, TARGETS[chip], tokens_per_pass=tokens)
    assert kernel_config(schedule).tagged_hidden == (chip in TAGGED_FROM and tokens >= TAGGED_FROM[chip])


def test_eight_bit_weights_take_little_more_than_their_integers() -> None:
    """Of Llama-3.2-1B: all but KV is within 1.08 times the integers and 64 MB."""
    fields = {"hidden": 2048, "heads": 32, "kv_heads": 8, "head_dim": 64, "intermediate": 8192}
    graph = llama_graph(layers=16, vocab=128_256, **fields)
    schedule = lower(graph, TARGETS["h200"], max_context=8192, group=0)
    stride = kernel_config(schedule).head_stride
    sizes = {b.id: stored_bytes(schedule, b.id, head_stride=stride) for b in schedule.buffers if b.kind != "kv"}
    integers = sum(sizes[b.id] for b in schedule.buffers if b.dtype == "i8")
    assert integers > 1.2e9
    assert sum(sizes.values()) <= 1.08 * integers + 64e6
