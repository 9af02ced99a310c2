"""sync: counters order each hop behind the one before, and each step behind the last; nothing missing or to spare."""

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
SCHEDULES = {(name, workers): lower(graph, workers=workers) for name, graph in MODELS.items() for workers in COUNTS}

each_schedule = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=lambda s: f"{s.target.workers}-workers")
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


@each_schedule
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


@each_schedule
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


@each_schedule
def test_a_task_signals_its_hop_once(schedule: Schedule) -> None:
    join = hops_of(schedule)[-2]
    for task in schedule.tasks:
        own = [counter for counter in task.signals if counter != join or hop_of(task) == join]
        assert own == ([] if isinstance(task.op, Begin) else [hop_of(task)])


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
    schedule = SCHEDULES["one head", 132]
    alone = [queue for queue in queues_of(schedule) if len(queue) == 1]
    assert len(alone) > 100
    assert all(task.signals == ("head",) for (task,) in alone)


def test_one_worker_runs_everything_in_order() -> None:
    (queue,) = queues_of(SCHEDULES["one head", 1])
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
