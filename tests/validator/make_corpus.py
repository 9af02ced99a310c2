"""Writes tests/corpus anew: ``python -m tests.validator.make_corpus``. Look at the difference before committing it.

``*.model.json`` holds an access model; ``*.schedule.json`` is a schedule that ``amk validate`` reads as it is. What
each is about, its verdict and its nearest neighbour stand in ``index.json``.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec.structs import replace

from amk.ir.buffers import Buffer
from amk.ir.schedule import Counter, Schedule, Symbol, Wait
from amk.ir.tasks import Begin, Gemv
from amk.validator import Outcome, validate, validate_model
from tests.builders import llama_graph, lower
from tests.validator import traps, traps_far, tricky  # fills the table
from tests.validator.cases import CASES
from tests.validator.changes import with_op, with_task

assert tricky
assert traps
assert traps_far

CORPUS = Path(__file__).resolve().parent.parent / "corpus"


def plain(schedule: Schedule) -> Schedule:
    """Without the checkpoint tensors behind the weights, which no rule looks at."""
    return replace(schedule, buffers=tuple(replace(buffer, source=None) for buffer in schedule.buffers))


TINY = plain(
    lower(
        llama_graph(hidden=8, layers=1, heads=1, kv_heads=1, head_dim=8, intermediate=8, vocab=11),
        workers=1,
        max_context=16,
    )
)


def target(**changes: object) -> Schedule:
    return replace(TINY, target=replace(TINY.target, **changes))


def begin(**changes: object) -> Schedule:
    task = TINY.tasks[0]
    assert isinstance(task.op, Begin)
    return with_op(TINY, task, replace(task.op, stop=replace(task.op.stop, **changes)))


def gemv(**changes: object) -> Schedule:
    task = next(task for task in TINY.tasks if isinstance(task.op, Gemv))
    return with_op(TINY, task, replace(task.op, **changes))


def without_begin() -> Schedule:
    queue = TINY.queues[0]
    return replace(TINY, tasks=TINY.tasks[1:], queues=(replace(queue, tasks=queue.tasks[1:]),))


def two_blocks() -> Schedule:
    """A second, empty worker: its queue holds a Begin alone, which joins the step."""
    graph = llama_graph(hidden=8, layers=1, heads=1, kv_heads=1, head_dim=8, intermediate=8, vocab=8)
    return plain(lower(graph, workers=2, max_context=16))


def with_versions(versions: int) -> Schedule:
    """An idle tagged buffer whose words may be written so many times a step."""
    idle = Buffer(id="idle", kind="activation", dtype="f32", shape=(1,), tagged=True, versions=versions)
    return replace(TINY, buffers=(*TINY.buffers, idle))


PAIR = two_blocks()
RING = TINY.target.stages * TINY.target.stage_bytes

# name: (code, why, schedule, nearest accepted neighbour)
SCHEDULES: dict[str, tuple[str, str, Schedule, str]] = {
    "tiny": ("", "one layer on one worker", TINY, ""),
    "two-workers": ("", "the second worker's queue is a Begin alone", PAIR, ""),
    "stop-not-read": (
        "AMK-V311",
        "a queue that does not open with Begin runs on after the others left",
        without_begin(),
        "tiny",
    ),
    "stop-this-step": ("AMK-V311", "stop of this step, which has not been sampled", begin(lag=0), "tiny"),
    "more-workers-than-blocks": (
        "AMK-V312",
        "two queues on a chip that holds one block: the second never starts",
        replace(PAIR, target=replace(PAIR.target, workers=1)),
        "two-workers",
    ),
    "plan-of-160-kb": (
        "AMK-V312",
        "a ring of 160 KB on a chip that gives a block 99 KB",
        target(name="rtx5090", arch="sm_120", shared_memory_bytes=227 * 1024, stages=10, stage_bytes=16 * 1024),
        "plan-of-99-kb",
    ),
    "plan-of-99-kb": (
        "",
        "48 KB of ring, 32 KB staged, scratch",
        target(
            name="rtx5090",
            arch="sm_120",
            shared_memory_bytes=99 * 1024,
            stages=6,
            stage_bytes=8192,
            k_chunk=1024,
            in_flight_bytes=16384,
        ),
        "",
    ),
    "in-flight-past-the-ring": (
        "AMK-V312",
        "more bytes in flight than the ring holds",
        target(in_flight_bytes=RING + 1),
        "in-flight-whole-ring",
    ),
    "in-flight-whole-ring": ("", "as many bytes in flight as the ring holds", target(in_flight_bytes=RING), ""),
    "threshold-that-wraps": (
        "AMK-V312",
        "true of the integers, and never of an int32 difference",
        with_task(TINY, replace(TINY.tasks[0], waits=(replace(TINY.tasks[0].waits[0], threshold=-(2**31)),))),
        "threshold-long-past",
    ),
    "threshold-long-past": (
        "",
        "a wait for a step long past holds at once; the others join the step",
        with_task(
            TINY,
            replace(TINY.tasks[0], waits=(*TINY.tasks[0].waits, Wait(counter="head", threshold=-(2**31) + 64))),
        ),
        "",
    ),
    "epochs-that-wrap": (
        "AMK-V312",
        "16 steps of 2^28 versions: the epochs of one launch wrap",
        with_versions(2**28),
        "epochs-that-fit",
    ),
    "epochs-that-fit": ("", "16 steps of 2^28 - 1 versions", with_versions(2**28 - 1), ""),
    "task-in-no-queue": (
        "AMK-V314",
        "a task that nobody runs",
        replace(TINY, queues=(replace(TINY.queues[0], tasks=TINY.queues[0].tasks[:-1]),)),
        "tiny",
    ),
    "task-twice": (
        "AMK-V314",
        "a task that is run twice a step",
        replace(TINY, queues=(replace(TINY.queues[0], tasks=(*TINY.queues[0].tasks, TINY.queues[0].tasks[-1])),)),
        "tiny",
    ),
    "lies-about-writes": (
        "AMK-V316",
        "a write of its kind that the task does not declare",
        with_task(TINY, replace(TINY.tasks[1], writes=())),
        "tiny",
    ),
    "rows-past-the-weight": ("AMK-V316", "rows that the weight does not have", gemv(rows=(0, 32)), "tiny"),
    "two-devices": ("AMK-V317", "a schedule of two devices", replace(TINY, devices=2), "tiny"),
    "batch-symbol": (
        "AMK-V317",
        "a symbol that this version does not prove",
        replace(TINY, symbols=(*TINY.symbols, Symbol(name="batch", low=1, high=4))),
        "tiny",
    ),
    "idle-counter": (
        "",
        "a counter that nobody uses hurts nobody",
        replace(TINY, counters=(*TINY.counters, Counter(id="idle"))),
        "",
    ),
}

# The nearest accepted neighbour of each refused model.
NEIGHBOURS = {
    "e1-early-release": "e1-joined",
    "e2-two-of-one": "e2-one-of-each",
    "e3-low": "e3-barrier",
    "e3-high": "e3-barrier",
    "e4-no-gate": "e4-gated",
    "e4-wait-is-no-gate": "e4-gated",
    "e4-past-no-gate": "e4-past-only",
    "e5-tag-publishes-kv": "e5-row-tagged",
    "e5-same-epoch-twice": "e5-second-version",
    "drift-reads-own-write": "drift-behind-wait",
    "version-stale": "version-latest",
    "coverage-hole": "coverage-rows",
    "lag-is-not-there": "lag-before-rewrite",
    "tag-overwritten": "tag-acknowledged",
    "tag-unread-unordered": "tag-acknowledged-by-tag",
    "plain-tag-publishes": "fenced-tag-publishes",
    "tag-of-a-row-that-may-not-be": "tag-of-every-row",
    "kv-half-the-heads": "kv-trail",
    "not-joined": "not-joined-few-steps",
    "input-written": "state-written",
    "region-past-the-end": "region-to-the-end",
    "output-hole": "output-whole",
    "output-twice": "output-whole",
    "drift-of-three-steps": "drift-of-two-steps",
    "stream-gate-three-back": "stream-gate-two-back",
    "gate-orders-no-read": "gate-and-wait",
    "gate-on-itself": "e4-gated",
    "second-stream-gated": "first-stream-gated",
    "own-new-row": "kv-trail",
    "lag-first-version": "lag-last-version",
    "overwritten-before-it-is-read": "overwritten-after-it-is-read",
    "tag-never-written": "tag-of-each-version",
    "tag-read-in-part": "tag-read-whole",
    "tag-beside-a-stranger": "tag-beside-a-stranger-for-few-steps",
    "tag-of-the-step-before": "tag-of-the-launch",
}


def main() -> None:
    """Write every file and the index."""
    index: dict[str, dict[str, str]] = {}
    for folder in ("accept", "reject"):
        (CORPUS / folder).mkdir(parents=True, exist_ok=True)
        for old in (CORPUS / folder).glob("*.json"):
            old.unlink()

    def put(name: str, suffix: str, code: str, why: str, neighbour: str, data: bytes, outcome: Outcome) -> None:
        folder = "reject" if code else "accept"
        path = f"{folder}/{code.removeprefix('AMK-') + '-' if code else ''}{name}.{suffix}.json"
        (CORPUS / path).write_bytes(data + b"\n")
        index[path] = {"verdict": outcome.value, "code": code, "why": why}
        if neighbour:
            index[path]["nearest"] = f"accept/{neighbour}.{suffix}.json"

    for name, case in CASES.items():
        data = msgspec.json.format(msgspec.json.encode(case.model, order="sorted"), indent=1)
        put(name, "model", case.code, case.why, NEIGHBOURS.get(name, ""), data, validate_model(case.model).outcome)
    for name, (code, why, schedule, neighbour) in SCHEDULES.items():
        put(name, "schedule", code, why, neighbour, schedule.to_json(), validate(schedule).outcome)
    text = msgspec.json.format(msgspec.json.encode(dict(sorted(index.items()))), indent=2)
    (CORPUS / "index.json").write_bytes(text + b"\n")


if __name__ == "__main__":
    main()
