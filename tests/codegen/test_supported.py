"""A proved schedule that no kernel is generated for is refused, and the refusal names what it is about."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace

from amk.codegen import supported
from amk.codegen.errors import NotGeneratableError
from amk.errors import EXIT_BUILD
from amk.ir.schedule import Schedule, Task, Wait
from amk.ir.tasks import Attention, Gemv
from tests.builders import EMBEDDING, llama_graph, lower
from tests.codegen.shapes import ARCHS, SHAPES, scheduled

Change = Callable[[Schedule], Schedule]


def with_target(**fields: object) -> Change:
    return lambda schedule: replace(schedule, target=replace(schedule.target, **fields))


def with_buffer(name: str, **fields: object) -> Change:
    def change(schedule: Schedule) -> Schedule:
        assert name in schedule.buffer
        return replace(schedule, buffers=tuple(replace(b, **fields) if b.id == name else b for b in schedule.buffers))

    return change


def with_first(kind: type[msgspec.Struct], edit: Callable[[Task], Task]) -> Change:
    def change(schedule: Schedule) -> Schedule:
        first = next(task for task in schedule.tasks if isinstance(task.op, kind))
        return replace(schedule, tasks=tuple(edit(task) if task is first else task for task in schedule.tasks))

    return change


def two_shapes(task: Task) -> Task:
    return replace(task, op=replace(task.op, head_dim=2 * task.op.head_dim))


def ungated(task: Task) -> Task:
    return replace(task, streams=tuple(replace(stream, gate=()) for stream in task.streams))


def half_gated(task: Task) -> Task:
    return replace(task, streams=(replace(task.streams[0], gate=()), *task.streams[1:]))


def shifted(task: Task) -> Task:
    low, high = task.op.rows
    return replace(task, op=replace(task.op, rows=(low + 4, high)))


def waiting_for_five(task: Task) -> Task:
    return replace(task, waits=tuple(Wait(counter="c", threshold=0) for _ in range(5)))


def signalling_five(task: Task) -> Task:
    return replace(task, signals=("c",) * 5)


def system_scope(schedule: Schedule) -> Schedule:
    first, *others = schedule.counters
    return replace(schedule, counters=(replace(first, scope="system"), *others))


def in_place(task: Task) -> Task:
    """As if its input were the buffer that it writes: other warps would read what it has stored."""
    return replace(task, reads=(replace(task.reads[0], region=task.writes[0].region), *task.reads))


REFUSALS = {
    "arch": (with_target(arch="cpu"), "arch cpu"),
    "warps": (with_target(consumer_warps=32), "32 consumer warps"),
    "drift": (with_target(drift=0), "a drift of 0"),
    "stage": (with_target(stage_bytes=1000), "a stage of 1000 bytes"),
    "devices": (lambda schedule: replace(schedule, devices=2), "2 devices and 1 sequences"),
    "sequences": (lambda schedule: replace(schedule, sequences=3), "1 devices and 3 sequences"),
    "scope": (system_scope, "of scope system"),
    "fenced": (with_buffer("qkv", fenced=True), "buffer qkv, whose tagged words are fenced"),
    "tagged splits": (with_buffer("L0.attn", tagged=True), "with the buffer L0.attn tagged"),
    "tagged logits": (with_buffer("logits", tagged=True), "with the buffer logits tagged"),
    "a tagged maximum": (with_buffer("best_value", tagged=True), "with the buffer best_value tagged"),
    "weight dtype": (with_buffer("L0.qkv.weight", dtype="f32"), "weight L0.qkv.weight is not packed bf16"),
    "weight layout": (with_buffer("L0.qkv.weight", layout="plain"), "weight L0.qkv.weight is not packed bf16"),
    "tied table": (with_buffer(EMBEDDING, dtype="f32"), f"weight {EMBEDDING} is not packed bf16"),
    "cache dtype": (with_buffer("L0.k_cache", dtype="i8"), "with a cache of f32, i8"),
    "mixed caches": (with_buffer("L0.v_cache", dtype="bf16"), "with a cache of bf16, f32"),
    "rows": (with_first(Gemv, shifted), "whose rows begin inside a tile"),
    "waits": (with_first(Gemv, waiting_for_five), "with 5 waits"),
    "signals": (with_first(Gemv, signalling_five), "and 5 signals"),
    "a product in place": (with_first(Gemv, in_place), "reads the buffer qkv while it writes it"),
    "attention in place": (with_first(Attention, in_place), "reads the buffer L0.attn while it writes it"),
    "no gate": (with_first(Attention, ungated), "not gated by one wait"),
    "other gate": (with_first(Attention, half_gated), "not gated by one wait"),
}


@pytest.mark.parametrize(("change", "named"), REFUSALS.values(), ids=REFUSALS)
def test_refused_by_name(change: Change, named: str) -> None:
    with pytest.raises(NotGeneratableError, match=named) as caught:
        supported.check(change(scheduled("smollm2", "sm_90")))
    assert caught.value.remedy
    assert caught.value.exit_code == EXIT_BUILD


def test_an_untied_table_is_looked_at_too() -> None:
    schedule = lower(llama_graph(tied=False), scheduled("smollm2", "sm_90").target)
    supported.check(schedule)
    with pytest.raises(NotGeneratableError, match=f"table {EMBEDDING} is f32"):
        supported.check(with_buffer(EMBEDDING, dtype="f32")(schedule))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("shape", SHAPES)
def test_what_the_passes_make_is_supported(shape: str, arch: str) -> None:
    supported.check(scheduled(shape, arch))


def test_the_head_shape() -> None:
    found = supported.head_shape(scheduled("odd", "sm_90", bf16_kv=True))
    assert found == supported.HeadShape(dim=10, group=7, kv_dtype="bf16", norm="none", capped=False, tagged_qkv=True)


def test_heads_of_two_shapes_are_refused() -> None:
    schedule = lower(llama_graph(layers=2), scheduled("smollm2", "sm_90").target)
    with pytest.raises(NotGeneratableError, match="attention of 2 shapes"):
        supported.head_shape(with_first(Attention, two_shapes)(schedule))
