"""What a task touches is what it declares: it depends on nothing else it could read, and writes that and all of it.

Each task runs twice. The second time every word outside its declared reads and streams is poisoned: NaN, or an integer
that fits nowhere. Its writes must come out the same, and every other word must be left alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import pytest
import torch
from msgspec.structs import replace

from amk.interpreter.memory import Memory, allocate
from amk.interpreter.semantics import compile_task
from amk.ir.regions import Env, Region, concrete
from amk.ir.schedule import Schedule, Task
from amk.ir.tasks import Sample
from tests.builders import lower
from tests.interpreter.driving import Model, rope_loader

T = TypeVar("T")

WILD = 2**30
CONTEXT = 1040
MODELS = {
    "4/2": Model(),
    "7/1": Model(hidden=56, heads=7, kv_heads=1, head_dim=8, intermediate=40, vocab=43, tied=False),
}
SCHEDULES = {
    f"{name}, {workers} workers, kv {'bf16' if bf16_kv else 'f32'}": (
        model,
        lower(model.graph, workers=workers, max_context=CONTEXT, bf16_kv=bf16_kv),
    )
    for name, model in MODELS.items()
    for workers, bf16_kv in ((1, False), (6, True), (6, False))
}
ALL_SPLITS_ACTIVE = (1030, 3)
STEPS = [ALL_SPLITS_ACTIVE, (0, 1), (0, 8), (40, 3), (300, 1)]

each_schedule = pytest.mark.parametrize(("model", "schedule"), SCHEDULES.values(), ids=SCHEDULES)
each_step = pytest.mark.parametrize(("pos", "tokens"), STEPS)


def filled(model: Model, schedule: Schedule, *, prompt_length: int) -> Memory:
    """Memory in which every word has a value that could occur."""
    memory = allocate(schedule, lambda name: torch.from_numpy(model.weights[name]), rope_loader(model.head_dim))
    random = torch.Generator().manual_seed(7)
    for buffer in schedule.buffers:
        if buffer.kind in {"weight", "const"}:
            continue
        tensor = memory[buffer.id]
        if tensor.dtype == torch.int32:
            tensor.copy_(torch.randint(model.vocab, tensor.shape, generator=random))
        else:
            tensor.copy_(torch.randn(tensor.shape, generator=random))
    if "attn_stats" in memory:
        memory["attn_stats"][..., 1].abs_().add_(0.1)
    memory["prompt_length"][0] = prompt_length
    return memory


def marked(regions: Iterable[Region], memory: Memory, env: Env) -> dict[str, torch.Tensor]:
    """Which words of each buffer the regions hold."""
    masks = {name: torch.zeros(tensor.shape, dtype=torch.bool) for name, tensor in memory.items()}
    for region in regions:
        masks[region.buffer][tuple(slice(low, max(low, high)) for low, high in concrete(region.box, env))] = True
    return masks


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The words as integers, so that a NaN equals itself."""
    return tensor.view(torch.int16 if tensor.dtype == torch.bfloat16 else torch.int32)


def check(task: Task, memory: Memory, pos: int, tokens: int) -> None:
    env = {"pos": pos, "tokens": tokens}
    reads = marked([*(r.region for r in task.reads), *(s.region for s in task.streams)], memory, env)
    writes = marked((write.region for write in task.writes), memory, env)
    poisoned = {
        name: torch.where(reads[name], tensor, WILD if tensor.dtype == torch.int32 else torch.nan)
        for name, tensor in memory.items()
    }
    plain = {name: tensor.clone() for name, tensor in memory.items()}
    strange = {name: tensor.clone() for name, tensor in poisoned.items()}
    left = compile_task(task.op, plain)(pos, tokens)
    assert compile_task(task.op, strange)(pos, tokens) == left

    for name, written in writes.items():
        for before, after in ((memory[name], plain[name]), (poisoned[name], strange[name])):
            assert torch.equal(bits(before)[~written], bits(after)[~written]), f"{name}: written outside"
        assert torch.equal(bits(plain[name])[written], bits(strange[name])[written]), f"{name}: depends on more"
        assert not plain[name][written].isnan().any(), f"{name}: not written"
        # Poison shows where a word is not written; a word that is read too was not poisoned, and changes.
        updated = written & reads[name]
        assert (plain[name] != memory[name])[updated].all(), f"{name}: not updated"


@each_schedule
@each_step
@pytest.mark.parametrize("prompt_length", [3, CONTEXT], ids=["sampling", "within the prompt"])
def test_every_task_touches_what_it_declares(
    model: Model, schedule: Schedule, pos: int, tokens: int, prompt_length: int
) -> None:
    memory = filled(model, schedule, prompt_length=prompt_length)
    layer_one = (task for task in schedule.tasks if not task.id.startswith("L0"))
    for task in layer_one:
        check(task, memory, pos, tokens)


def test_begin_leaves_only_where_stop_is_set() -> None:
    model, schedule = SCHEDULES["4/2, 6 workers, kv f32"]
    memory = filled(model, schedule, prompt_length=3)
    for stop, leaves in ((1, True), (0, False), (-1, False)):
        memory["stop"][0] = stop
        check(schedule.task["begin#2"], memory, 4, 1)
        assert compile_task(schedule.task["begin#2"].op, memory)(4, 1) is leaves


def without(accesses: tuple[T, ...], number: int) -> tuple[T, ...]:
    return accesses[:number] + accesses[number + 1 :]


@each_schedule
def test_a_read_that_is_not_declared_is_noticed(model: Model, schedule: Schedule) -> None:
    """The check checks: with any one declared read or stream left out, it fails."""
    memory = filled(model, schedule, prompt_length=3)
    seen = set()
    for task in schedule.tasks:
        for number, read in enumerate(task.reads):
            # What is there to be compared, and decides nothing here: a stop, an end of text, a prompt that is behind.
            if read.region.buffer in {"stop", "eos", "prompt"}:
                continue
            # One candidate is the largest whatever it is.
            if read.region.buffer == "best_value" and schedule.target.workers == 1:
                continue
            with pytest.raises((AssertionError, IndexError)):
                check(replace(task, reads=without(task.reads, number)), memory, *ALL_SPLITS_ACTIVE)
            seen.add(read.region.buffer)
        for number, stream in enumerate(task.streams):
            with pytest.raises(AssertionError):
                check(replace(task, streams=without(task.streams, number)), memory, *ALL_SPLITS_ACTIVE)
            seen.add(stream.region.buffer)
    assert {"hidden", "qkv", "rope", "mlp", "prompt_length", "best_index", "L1.k_cache", "L1.v_cache"} <= seen


@each_schedule
def test_a_write_that_is_not_declared_is_noticed(model: Model, schedule: Schedule) -> None:
    memory = filled(model, schedule, prompt_length=3)
    for task in schedule.tasks:
        for number in range(len(task.writes)):
            with pytest.raises(AssertionError, match="written outside"):
                check(replace(task, writes=without(task.writes, number)), memory, 40, 3)


def test_a_declared_write_that_is_not_made_is_noticed() -> None:
    model, schedule = SCHEDULES["4/2, 6 workers, kv f32"]
    memory = filled(model, schedule, prompt_length=3)
    task = schedule.task["L0.qkv#0"]
    wider = schedule.task["L0.qkv#1"].writes
    with pytest.raises(AssertionError, match=r"qkv: (depends on more|not written)"):
        check(replace(task, writes=task.writes + wider), memory, 40, 3)


@pytest.mark.parametrize(
    ("length", "token", "rows"),
    [
        (50, "prompt", ["prompt", "prompt", "prompt"]),
        (44, "prompt", ["prompt", "token", "token"]),
        (43, "best", ["token", "token", "token"]),
        (3, "best", ["token", "token", "token"]),
    ],
)
def test_the_sampler_at_the_end_of_the_prompt(length: int, token: str, rows: list[str]) -> None:
    """A step of rows 40, 41, 42: position 43 is given by the prompt if it reaches that far."""
    model, schedule = SCHEDULES["4/2, 6 workers, kv f32"]
    memory = filled(model, schedule, prompt_length=length)
    sample = schedule.task["sample#0"].op
    assert isinstance(sample, Sample)
    compile_task(sample, memory)(40, 3)
    slot = int(memory["best_value"].argmax())
    expected = int(memory["prompt"][43] if token == "prompt" else memory["best_index"][slot])
    assert int(memory["token"][43]) == expected
    ids = [int(memory["prompt"][43 + n]) if row == "prompt" else expected for n, row in enumerate(rows)]
    assert torch.equal(memory["hidden"][:3], memory[sample.table][torch.tensor(ids)])


@pytest.mark.parametrize(
    ("values", "indices", "expected"),
    [
        ([1.0, 3.0, 2.0], [5, 40, 80], 40),
        ([3.0, 3.0, 2.0], [41, 40, 80], 40),
        ([-1.0, -2.0, -1.0], [7, 40, 6], 6),
        ([-torch.inf, -torch.inf, -5.0], [0, 0, 90], 90),
        ([-torch.inf, -torch.inf, -torch.inf], [8, 40, 80], 8),
        ([torch.inf, torch.inf, 0.0], [9, 40, 80], 9),
        ([0.0, -0.0, -1.0], [9, 3, 80], 3),
        ([9.0, torch.nan, 8.0], [9, 40, 80], 40),
        ([torch.nan, torch.inf, torch.nan], [30, 10, 20], 20),
    ],
)
def test_the_sampler_takes_the_largest_and_lowest(values: list[float], indices: list[int], expected: int) -> None:
    model = MODELS["4/2"]
    schedule = lower(model.graph, workers=3)
    memory = filled(model, schedule, prompt_length=3)
    memory["best_value"].copy_(torch.tensor(values))
    memory["best_index"].copy_(torch.tensor(indices))
    compile_task(schedule.task["sample#0"].op, memory)(10, 1)
    assert int(memory["token"][11]) == expected


@pytest.mark.parametrize("tokens", [1, 3])
def test_an_idle_head_writes_the_neutral_element(tokens: int) -> None:
    model, schedule = SCHEDULES["4/2, 6 workers, kv f32"]
    memory = filled(model, schedule, prompt_length=41 + tokens)
    compile_task(schedule.task["head#2"].op, memory)(40, tokens)
    low, high = schedule.task["head#2"].op.rows
    assert not memory["logits"][low:high].any()
    assert (float(memory["best_value"][2]), int(memory["best_index"][2])) == (-torch.inf, 0)
    memory["prompt_length"][0] = 40 + tokens
    compile_task(schedule.task["head#2"].op, memory)(40, tokens)
    assert memory["logits"][low:high].all()
    assert float(memory["best_value"][2]) == memory["logits"][low:high].max()
    assert low <= int(memory["best_index"][2]) < high
