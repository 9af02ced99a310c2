"""The estimated timeline: what must hold whatever the schedule, and what the model says of cases worked by hand."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import pytest
from msgspec.structs import replace

from amk.ir.costmodel import Ring, UntimeableScheduleError
from amk.ir.schedule import Counter, Schedule, Wait
from amk.ir.timeline import Span, Timeline, estimate, hop_of
from amk.target import Target, resolve_target
from tests.builders import cpu_target, llama_graph, lower
from tests.conftest import Run

SLACK_US = 1e-6
TINY = llama_graph()
SMALL = llama_graph(hidden=576, layers=3, heads=9, kv_heads=3, head_dim=64, intermediate=1536, vocab=4096)


def chip(arch: str, workers: int | None = None) -> Target:
    return resolve_target(arch=arch, target=None, workers=workers)


SCHEDULES = {
    "tiny-132": lower(TINY, chip("sm_90"), max_context=512),
    "tiny-1": lower(TINY, chip("sm_90", 1), max_context=512),
    "tiny-cpu": lower(TINY, cpu_target(4), max_context=512),
    "small-7": lower(SMALL, chip("sm_90", 7), max_context=512),
    "small-132": lower(SMALL, chip("sm_90"), max_context=512),
    "small-a100": lower(SMALL, chip("sm_80"), max_context=512),
    "wide-3": lower(llama_graph(hidden=2048, intermediate=8192, vocab=32001), chip("sm_90", 3), max_context=512),
}


@pytest.fixture(params=SCHEDULES)
def schedule(request: pytest.FixtureRequest) -> Schedule:
    return SCHEDULES[request.param]


@pytest.fixture(params=[(0, 1), (300, 1), (100, 8)], ids=str)
def timeline(schedule: Schedule, request: pytest.FixtureRequest) -> Timeline:
    pos, tokens = request.param
    return estimate(schedule, pos=pos, tokens=tokens)


def by_task(timeline: Timeline) -> dict[str, Span]:
    return {span.task: span for span in timeline.spans}


def test_every_task_runs_once_in_the_order_of_its_queue(schedule: Schedule, timeline: Timeline) -> None:
    assert not timeline.stuck
    found: defaultdict[int, list[str]] = defaultdict(list)
    for span in timeline.spans:
        found[span.worker].append(span.task)
    assert [tuple(found[n]) for n in range(len(schedule.queues))] == [queue.tasks for queue in schedule.queues]


def test_a_worker_does_one_thing_at_a_time(timeline: Timeline) -> None:
    for before, after in pairwise(timeline.spans):
        assert before.end_us >= before.start_us
        if before.worker == after.worker:
            assert after.start_us >= before.end_us
            assert after.wait_us == pytest.approx(after.start_us - before.end_us)


def test_a_task_starts_a_hop_after_the_last_signal_it_waits_for(schedule: Schedule, timeline: Timeline) -> None:
    spans = by_task(timeline)
    signallers: defaultdict[str, list[Span]] = defaultdict(list)
    for task in schedule.tasks:
        for counter in task.signals:
            signallers[counter].append(spans[task.id])
    for task in schedule.tasks:
        here = spans[task.id]
        for wait in task.waits:
            if wait.threshold <= 0:
                continue
            assert wait.threshold == len(signallers[wait.counter]), "the sync pass joins whole hops"
            for there in signallers[wait.counter]:
                hop_us = schedule.target.hop_us if there.worker != here.worker else 0.0
                assert here.start_us >= there.end_us + hop_us - SLACK_US, (task.id, there.task)


def test_a_step_streams_every_weight_and_takes_no_less_than_its_bytes(schedule: Schedule, timeline: Timeline) -> None:
    weights = sum(buffer.bytes for buffer in schedule.buffers if buffer.kind == "weight")
    assert timeline.bytes == sum(span.bytes for span in timeline.spans) >= weights
    assert timeline.floor_us == pytest.approx(timeline.bytes / schedule.target.bandwidth_bytes_per_s * 1e6)
    assert timeline.step_us >= timeline.floor_us - SLACK_US
    assert timeline.step_us == pytest.approx(max(span.end_us for span in timeline.spans))


def test_hops_add_up(timeline: Timeline) -> None:
    assert sum(hop.tasks for hop in timeline.hops) == len(timeline.spans)
    assert sum(hop.bytes for hop in timeline.hops) == timeline.bytes
    assert [hop.hop for hop in timeline.hops][-2:] == ["head", "sample"]
    assert all(0 <= hop.longest_us <= hop.end_us - hop.start_us + SLACK_US for hop in timeline.hops)


def test_it_is_deterministic(schedule: Schedule) -> None:
    assert estimate(schedule, pos=9, tokens=2) == estimate(Schedule.from_json(schedule.to_json()), pos=9, tokens=2)


def test_a_longer_context_and_a_slower_hop_take_longer() -> None:
    schedule = SCHEDULES["small-132"]
    slow = replace(schedule, target=replace(schedule.target, hop_us=5.0))
    short = estimate(schedule, pos=0, tokens=1)
    assert estimate(schedule, pos=500, tokens=1).bytes > short.bytes
    assert estimate(slow, pos=0, tokens=1).step_us > short.step_us


def test_one_worker_that_never_waits_is_bound_by_its_stream() -> None:
    timeline = estimate(lower(llama_graph(hidden=1024, intermediate=4096), chip("sm_90", 1)), pos=0, tokens=1)
    assert timeline.step_us == pytest.approx(timeline.floor_us, rel=0.02)


def test_the_ring_runs_ahead_as_far_as_it_holds() -> None:
    ring = Ring(bytes_per_us=1.0, capacity=10, limit=10)
    assert ring.consume(100.0, upto=8) == 100.0  # long since there
    assert ring.consume(100.0, upto=30) == 120.0  # 10 were there, 20 come one a microsecond
    assert ring.position == 30


def test_a_gate_holds_the_ring_back() -> None:
    opens: list[float] = []
    ring = Ring(bytes_per_us=1.0, capacity=100, limit=100)
    ring.gates.append((5, lambda: opens[0] if opens else None))
    assert ring.consume(50.0, upto=5) == 50.0
    opens.append(60.0)
    assert ring.consume(60.0, upto=25) == 80.0


def test_a_schedule_that_blocks_is_shown_up_to_there() -> None:
    schedule = SCHEDULES["tiny-cpu"]
    broken = replace(
        schedule,
        tasks=tuple(
            replace(task, waits=(Wait(counter="L1.attention", threshold=99),)) if hop_of(task.id) == "L1.o" else task
            for task in schedule.tasks
        ),
    )
    timeline = estimate(broken, pos=0, tokens=1)
    assert {hop_of(stuck.task) for stuck in timeline.stuck} >= {"L1.o"}
    assert any("signal 99 of L1.attention, which gets" in stuck.waits_for for stuck in timeline.stuck)
    assert 0 < len(timeline.spans) < len(schedule.tasks)
    assert "head" not in {span.hop for span in timeline.spans}


def test_a_tag_is_waited_for_like_a_counter() -> None:
    schedule = SCHEDULES["tiny-cpu"]
    tagged = replace(
        schedule,
        buffers=tuple(replace(buffer, tagged=buffer.id == "mlp") for buffer in schedule.buffers),
        tasks=tuple(replace(task, waits=()) if hop_of(task.id).endswith(".down") else task for task in schedule.tasks),
    )
    timeline = estimate(tagged, pos=0, tokens=1)
    hops = {hop.hop: hop for hop in timeline.hops}
    assert not timeline.stuck
    assert hops["L0.down"].start_us >= hops["L0.gate_up"].end_us


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"tasks": ()}, "begin#0"),
        ({"counters": (Counter(id="other"),)}, "sample"),
        ({"buffers": ()}, "has no cost"),
        ({"target": replace(SCHEDULES["tiny-1"].target, bandwidth_bytes_per_s=0)}, "no bandwidth"),
    ],
)
def test_what_is_not_declared_is_an_error(change: dict[str, object], named: str) -> None:
    with pytest.raises(UntimeableScheduleError, match=named):
        estimate(replace(SCHEDULES["tiny-1"], **change), pos=0, tokens=1)


def test_an_empty_schedule_takes_no_time() -> None:
    timeline = estimate(replace(SCHEDULES["tiny-1"], tasks=(), queues=()), pos=0, tokens=1)
    assert (timeline.step_us, timeline.spans, timeline.hops) == (0.0, (), ())


def test_no_framework_is_needed(run_python: Run) -> None:
    ran = run_python("import amk.ir.timeline, sys; print(sorted({'torch', 'jinja2', 'numpy'} & set(sys.modules)))")
    assert ran.stdout.strip() == "[]"
