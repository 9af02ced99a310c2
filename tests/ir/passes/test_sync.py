"""sync: counters order each hop behind the one before, and each step behind the last; nothing missing or to spare.

Where words are tagged, only what is plain has counters.
"""

from __future__ import annotations

from collections import Counter as Tally
from itertools import chain, pairwise

import pytest

from amk.ir.buffers import Operand
from amk.ir.graph import Graph
from amk.ir.schedule import Schedule, Symbol, Task, Wait
from amk.ir.tasks import Begin, Sample
from tests.builders import cpu_target, llama_graph, lower

MODELS = {
    "tiny": llama_graph(),
    "one head": llama_graph(hidden=8, layers=1, heads=1, kv_heads=1, head_dim=8, intermediate=8, vocab=11),
    "7/1": llama_graph(
        hidden=112, layers=3, heads=7, kv_heads=1, head_dim=16, intermediate=200, vocab=1009, tied=False
    ),
    "5/5": llama_graph(hidden=80, layers=2, heads=5, kv_heads=5, head_dim=16, intermediate=136, vocab=32_001),
}
COUNTS = (1, 2, 7, 132)
CASES = [(name, workers) for name in MODELS for workers in COUNTS]
PLAIN = {(name, workers): lower(MODELS[name], workers=workers, tagged=False) for name, workers in CASES}
TAGGED = {(name, workers): lower(MODELS[name], workers=workers) for name, workers in CASES}

each_schedule = pytest.mark.parametrize(
    "schedule", [*PLAIN.values(), *TAGGED.values()], ids=[f"{n}-{w}-{k}" for k in ("plain", "tagged") for n, w in CASES]
)
each_plain = pytest.mark.parametrize("schedule", PLAIN.values(), ids=[f"{n}-{w}" for n, w in CASES])
each_tagged = pytest.mark.parametrize("schedule", TAGGED.values(), ids=[f"{n}-{w}" for n, w in CASES])
each_count = pytest.mark.parametrize("workers", COUNTS)


def hop_of(task: Task) -> str:
    return task.id.split("#")[0]


def queues_of(schedule: Schedule) -> list[list[Task]]:
    return [[schedule.task[name] for name in queue.tasks] for queue in schedule.queues]


def hops_of(schedule: Schedule) -> list[str]:
    return [counter.id for counter in schedule.counters]


@each_schedule
def test_each_task_stands_in_one_queue(schedule: Schedule) -> None:
    assert [queue.index for queue in schedule.queues] == list(range(schedule.target.workers))
    queued = Tally(chain.from_iterable(queue.tasks for queue in schedule.queues))
    assert queued == Tally(task.id for task in schedule.tasks)
    assert set(queued.values()) == {1}


@each_plain
def test_a_queue_is_in_hop_order(schedule: Schedule) -> None:
    place = {hop: number for number, hop in enumerate(["begin", *hops_of(schedule)])}
    for queue in queues_of(schedule):
        places = [place[hop_of(task)] for task in queue]
        assert places == sorted(places)


@each_schedule
def test_every_queue_opens_with_begin_behind_the_last_steps_sampler(schedule: Schedule) -> None:
    for number, (first, *rest) in enumerate(queues_of(schedule)):
        assert first.id == f"begin#{number}"
        assert first.op == Begin(stop=Operand(buffer="stop", lag=1))
        assert first.waits == (Wait(counter="sample", threshold=0),)
        assert not any(isinstance(task.op, Begin) for task in rest)


@each_schedule
def test_a_threshold_is_all_signals_of_this_step_or_none(schedule: Schedule) -> None:
    signals = Tally(chain.from_iterable(task.signals for task in schedule.tasks))
    assert schedule.signals_per_step == signals
    gates = (stream.gate for task in schedule.tasks for stream in task.streams)
    waits = set(chain.from_iterable(chain((task.waits for task in schedule.tasks), gates)))
    assert {wait.threshold for wait in waits if wait.threshold} == {signals[w.counter] for w in waits if w.threshold}
    for wait in waits:
        assert wait.threshold in {0, signals[wait.counter]}
    waited = {wait.counter for wait in waits}
    assert waited == set(hops_of(schedule)), "a counter that nobody waits for is to spare"


@each_plain
def test_a_task_is_behind_all_of_the_hop_before(schedule: Schedule) -> None:
    signals = schedule.signals_per_step
    before = {later: earlier for earlier, later in pairwise(hops_of(schedule))}
    for queue in queues_of(schedule):
        met: set[Wait] = set()
        for task in queue:
            assert not met & set(task.waits), "a wait that is met already"
            met.update(task.waits)
            if hop_of(task) in before:
                hop = before[hop_of(task)]
                assert Wait(counter=hop, threshold=signals[hop]) in met


@each_tagged
def test_a_queue_is_in_the_same_order_whether_words_are_tagged_or_not(schedule: Schedule) -> None:
    plain = next(other for case, other in PLAIN.items() if TAGGED[case] is schedule)
    assert schedule.queues == plain.queues


@each_tagged
def test_a_task_waits_for_the_hop_that_it_reads_plain_data_from_and_for_no_other(schedule: Schedule) -> None:
    signals = schedule.signals_per_step
    writer = {
        (write.region.buffer, write.version): hop_of(task)
        for task in schedule.tasks
        for write in task.writes
        if schedule.buffer[write.region.buffer].kind in {"activation", "state"}
    }
    assert {buffer.id for buffer in schedule.buffers if buffer.tagged} == {"hidden", "qkv", "mlp"}
    for queue in queues_of(schedule):
        met: set[str] = set()
        for task in queue:
            if isinstance(task.op, Begin):
                continue
            met |= {wait.counter for wait in task.waits}
            plain = [read for read in task.reads if not schedule.buffer[read.region.buffer].tagged and read.lag == 0]
            sources = {writer.get((read.region.buffer, read.version)) for read in plain} - {None}
            assert {wait.counter for wait in task.waits} <= sources <= met
            assert all(wait.threshold == signals[wait.counter] for wait in task.waits)


@each_schedule
def test_a_task_signals_its_hop_once(schedule: Schedule) -> None:
    join = hops_of(schedule)[-2]
    for task in schedule.tasks:
        own = [counter for counter in task.signals if counter != join or hop_of(task) == join]
        counted = not isinstance(task.op, Begin) and hop_of(task) in hops_of(schedule)
        assert own == ([hop_of(task)] if counted else [])


@each_schedule
def test_every_worker_joins_the_step_by_its_last_task(schedule: Schedule) -> None:
    join = hops_of(schedule)[-2]
    for queue in queues_of(schedule):
        tasks = [task for task in queue if not isinstance(task.op, Sample)]
        assert join in tasks[-1].signals
        assert not any(join in task.signals for task in tasks if task is not tasks[-1] and hop_of(task) != join)
    (sampler,) = (task for task in schedule.tasks if isinstance(task.op, Sample))
    assert Wait(counter=join, threshold=schedule.signals_per_step[join]) in sampler.waits
    assert sampler.signals == ("sample",)


@each_schedule
def test_only_kv_is_streamed_behind_a_gate(schedule: Schedule) -> None:
    kinds = set()
    for task in schedule.tasks:
        for stream in task.streams:
            kind = schedule.buffer[stream.region.buffer].kind
            kinds.add(kind)
            assert stream.gate == ((Wait(counter="sample", threshold=0),) if kind == "kv" else ())
    assert kinds == {"weight", "kv"}


@each_schedule
def test_a_task_declares_what_its_kind_derives(schedule: Schedule) -> None:
    for task in schedule.tasks:
        assert task.reads == task.op.reads(schedule.buffer)
        assert task.writes == task.op.writes(schedule.buffer)
        assert tuple(stream.region for stream in task.streams) == task.op.streams(schedule.buffer)


def test_a_tiny_model_leaves_most_workers_with_a_begin_alone() -> None:
    schedule = PLAIN["one head", 132]
    alone = [queue for queue in queues_of(schedule) if len(queue) == 1]
    assert len(alone) > 100
    assert all(task.signals == ("head",) for (task,) in alone)


def test_one_worker_runs_everything_in_order() -> None:
    (queue,) = queues_of(PLAIN["one head", 1])
    assert [task.id for task in queue] == [
        "begin#0", "L0.qkv#0", "L0.attention#0", "L0.o#0", "L0.gate_up#0", "L0.down#0", "head#0", "sample#0"
    ]  # fmt: skip


@pytest.mark.parametrize("graph", MODELS.values(), ids=MODELS)
@each_count
def test_the_frame_of_the_schedule(graph: Graph, workers: int) -> None:
    schedule = lower(graph, workers=workers, max_context=48, tokens_per_pass=5)
    assert schedule.version == 1
    assert schedule.target == cpu_target(workers)
    assert schedule.symbols == (Symbol(name="pos", low=0, high=47), Symbol(name="tokens", low=1, high=5))
    assert (schedule.max_context, schedule.steps_max) == (48, 48)
    assert {counter.scope for counter in schedule.counters} == {"gpu"}
