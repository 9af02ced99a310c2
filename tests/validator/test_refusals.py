"""What is refused whatever the order of tasks is: each line that can be said of a file or a kind is said of something.

The nearest accepted neighbour of all of them is the schedule that they change.
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from amk.ir.buffers import Buffer, Operand
from amk.ir.regions import Linear
from amk.ir.schedule import Counter, Schedule, Symbol, Wait
from amk.ir.tasks import Attention, Gemv, Sample
from amk.target import TARGETS
from amk.validator import AccessModel, Outcome, Verdict, validate, validate_model
from amk.validator.limits import COUNTERS_MAX
from tests.builders import llama_graph, lower
from tests.validator.changes import with_task
from tests.validator.notation import ONE, kv, model, read, state, stream, task, write

BASE = lower(
    llama_graph(hidden=16, layers=2, heads=4, kv_heads=2, head_dim=8, intermediate=16, vocab=24),
    workers=3,
    max_context=32,
    splits_max=1,
)
SPLIT = lower(
    llama_graph(hidden=16, layers=2, heads=4, kv_heads=2, head_dim=8, intermediate=16, vocab=24),
    workers=4,
    max_context=32,
    splits_max=2,
)
RING = BASE.target.stages * BASE.target.stage_bytes


def target(**changes: Any) -> Schedule:
    return replace(BASE, target=replace(BASE.target, **changes))


def chip(name: str, **changes: Any) -> Schedule:
    return replace(BASE, target=replace(TARGETS[name], **changes))


def said(verdict: Verdict, code: str, text: str) -> bool:
    return any(finding.code == code and text in finding.what for finding in verdict.findings)


def test_the_base_is_proved() -> None:
    assert validate(BASE).proved
    assert validate(SPLIT).proved


CAPACITY = {
    "workers": (target(workers=2), "3 queues, but cpu holds 2 blocks at once"),
    "workers 0": (target(workers=0), "workers=0 is not positive"),
    "workers 2000": (target(workers=2000), "2000 workers, at most 1024"),
    "stages": (target(stages=0), "stages=0 is not positive"),
    "drift": (target(drift=9), "drift=9 is not in 0 .. 8"),
    "negative drift": (target(drift=-1), "drift=-1 is not in 0 .. 8"),
    "arch": (target(arch="sm_70"), "unknown arch 'sm_70'"),
    "shared memory": (target(shared_memory_bytes=2**21), "gives a block"),
    "shared memory of a chip": (chip("a100", shared_memory_bytes=200 * 1024), "but a100 gives a block 166912"),
    "another arch": (chip("h200", arch="sm_80", shared_memory_bytes=160 * 1024), "h200 is a sm_90 chip, not sm_80"),
    "sums": (target(shared_memory_bytes=RING + 4096 * 8 * 4), "more than the"),
    "in flight": (target(in_flight_bytes=RING + 1), "bytes in flight, more than the ring"),
    "block": (target(stage_bytes=256), "a block of L0.qkv.weight has 512 bytes, a stage of the ring 256"),
    "tile": (target(stage_bytes=128, stages=1, in_flight_bytes=128), "has 256 bytes, the ring 128"),
    "counters": (
        replace(BASE, counters=(*BASE.counters, *(Counter(id=f"c{n}") for n in range(COUNTERS_MAX)))),
        "counters, at most 65536",
    ),
}


@pytest.mark.parametrize("name", CAPACITY)
def test_capacity(name: str) -> None:
    schedule, text = CAPACITY[name]
    verdict = validate(schedule)
    assert said(verdict, "AMK-V312", text), [str(finding) for finding in verdict.findings]


def test_a_gate_may_wrap_too() -> None:
    at = next(task for task in BASE.tasks if task.streams and task.streams[0].gate)
    far = (Wait(counter=at.streams[0].gate[0].counter, threshold=-(2**31)),)
    mutant = with_task(BASE, replace(at, streams=(replace(at.streams[0], gate=far), *at.streams[1:])))
    assert said(validate(mutant), "AMK-V312", "leave int32")


FIRST = BASE.queues[0]
TASK = BASE.tasks[1]
STRUCTURE = {
    "two tasks": (replace(BASE, tasks=(*BASE.tasks, TASK)), f"2 tasks are called {TASK.id!r}"),
    "two buffers": (replace(BASE, buffers=(*BASE.buffers, BASE.buffers[0])), "2 buffers are called"),
    "two counters": (replace(BASE, counters=(*BASE.counters, BASE.counters[0])), "2 counters are called"),
    "no name": (replace(BASE, counters=(*BASE.counters, Counter(id=""))), "a counter has an empty id"),
    "no queues": (replace(BASE, queues=()), "there are no queues"),
    "numbers": (replace(BASE, queues=BASE.queues[::-1]), "queues are numbered 2, 1, 0, not 0 .. 2"),
    "nobody": (
        replace(BASE, queues=(replace(FIRST, tasks=(*FIRST.tasks, "nobody")), *BASE.queues[1:])),
        "a queue names the task 'nobody'",
    ),
    "twice": (
        replace(BASE, queues=(replace(FIRST, tasks=(*FIRST.tasks, FIRST.tasks[1])), *BASE.queues[1:])),
        "stands 2 times in queues",
    ),
    "in no queue": (
        replace(BASE, queues=(replace(FIRST, tasks=FIRST.tasks[:-1]), *BASE.queues[1:])),
        "stands in no queue",
    ),
    "signal": (with_task(BASE, replace(TASK, signals=("nobody",))), "names the counter 'nobody'"),
    "wait": (with_task(BASE, replace(TASK, waits=(Wait(counter="nobody", threshold=0),))), "the counter 'nobody'"),
    "gate": (
        with_task(
            BASE, replace(TASK, streams=(replace(TASK.streams[0], gate=(Wait(counter="nobody", threshold=0),)),))
        ),
        "the counter 'nobody'",
    ),
}


@pytest.mark.parametrize("name", STRUCTURE)
def test_structure(name: str) -> None:
    schedule, text = STRUCTURE[name]
    verdict = validate(schedule)
    assert said(verdict, "AMK-V314", text), [str(finding) for finding in verdict.findings]


POS, TOKENS = BASE.symbols
NOT_SUPPORTED = {
    "devices": (replace(BASE, devices=2), "devices=2"),
    "sequences": (replace(BASE, sequences=2), "sequences=2"),
    "buffer elsewhere": (
        replace(BASE, buffers=(replace(BASE.buffers[0], device=1), *BASE.buffers[1:])),
        "is on a second device",
    ),
    "queue elsewhere": (replace(BASE, queues=(replace(FIRST, device=1), *BASE.queues[1:])), "queue 0 is on a second"),
    "counter elsewhere": (
        replace(BASE, counters=(replace(BASE.counters[0], device=1), *BASE.counters[1:])),
        "is on a second device",
    ),
    "no symbols": (replace(BASE, symbols=()), "symbols are none"),
    "another symbol": (replace(BASE, symbols=(POS, TOKENS, Symbol(name="batch", low=1, high=1))), "batch"),
    "negative pos": (replace(BASE, symbols=(replace(POS, low=-1), TOKENS)), "pos ranges over -1"),
    "no rows": (replace(BASE, symbols=(POS, replace(TOKENS, low=0))), "tokens ranges over 0"),
    "nine rows": (replace(BASE, symbols=(POS, replace(TOKENS, high=9))), "a step has 1 to 8 rows"),
    "no room": (replace(BASE, symbols=(replace(POS, low=32, high=40), TOKENS)), "no step of 1 rows from pos=32"),
}


@pytest.mark.parametrize("name", NOT_SUPPORTED)
def test_not_supported(name: str) -> None:
    schedule, text = NOT_SUPPORTED[name]
    verdict = validate(schedule)
    assert said(verdict, "AMK-V317", text), [str(finding) for finding in verdict.findings]


@pytest.mark.parametrize("changes", [{"tokens": (0, 1)}, {"tokens": (1, 9)}, {"pos_low": -1}, {"pos_low": 8}])
def test_launches_of_a_bare_model(changes: dict) -> None:
    verdict = validate_model(replace(_alone(write("a"), buffers=[state("a")]), **changes))
    assert verdict.codes() == {"AMK-V317"}


def _of(kind: type, schedule: Schedule = BASE, **fields: Any) -> Any:
    return next(
        task
        for task in schedule.tasks
        if isinstance(task.op, kind) and all(isinstance(getattr(task.op, name), what) for name, what in fields.items())
    )


def forged(kind: type, schedule: Schedule = BASE, at: Any = None, **changes: Any) -> Schedule:
    """Other parameters, with accesses as they were: what a kind cannot be is refused before they are derived."""
    chosen = at or _of(kind, schedule)
    return with_task(schedule, replace(chosen, op=replace(chosen.op, **changes)))


def of_epilogue(tag: str, schedule: Schedule = BASE) -> Any:
    return next(
        task
        for task in schedule.tasks
        if isinstance(task.op, Gemv) and type(task.op.epilogue).__struct_config__.tag == tag
    )


def epilogue(tag: str, **changes: Any) -> Schedule:
    chosen = of_epilogue(tag)
    return forged(Gemv, at=chosen, epilogue=replace(chosen.op.epilogue, **changes))


def prologue(**changes: Any) -> Schedule:
    chosen = next(task for task in SPLIT.tasks if isinstance(task.op, Gemv) and hasattr(task.op.prologue, "splits"))
    return forged(Gemv, SPLIT, at=chosen, prologue=replace(chosen.op.prologue, **changes))


def buffer(name: str, **changes: Any) -> Schedule:
    return replace(BASE, buffers=tuple(replace(old, **changes) if old.id == name else old for old in BASE.buffers))


KINDS = {
    "no such buffer": (forged(Gemv, x=Operand(buffer="nobody")), "x names the buffer 'nobody'"),
    "a weight as x": (forged(Gemv, x=Operand(buffer="model.norm.weight")), "it must be activation or state"),
    "type of x": (buffer("hidden", dtype="i32"), "of type i32; it must be bf16 or f32"),
    "rank of x": (forged(Gemv, x=Operand(buffer="best_value")), "of rank 1; it must have 2"),
    "an activation as weight": (forged(Gemv, weight="hidden"), "weight is hidden, a state buffer"),
    "no columns": (forged(Gemv, k=0), "k=0 columns"),
    "no rows": (forged(Gemv, rows=(8, 8)), "rows [8, 8) are none"),
    "rows past the weight": (forged(Gemv, rows=(0, 999)), "are not inside"),
    "gain": (forged(Gemv, prologue=replace(_of(Gemv).op.prologue, gain="hidden")), "gain is hidden"),
    "splits": (prologue(splits=0), "splits=0"),
    "heads": (prologue(heads=3), "columns are not 3 heads"),
    "stats of another step": (
        prologue(stats=Operand(buffer="attn_stats", version=0, lag=1)),
        "x and its stats are of different steps",
    ),
    "written with lag": (epilogue("store", out=Operand(buffer="qkv", lag=1)), "out is written with lag 1"),
    "residual": (epilogue("add_residual", residual=Operand(buffer="stop")), "residual is stop"),
    "split gate": (forged(Gemv, at=of_epilogue("gated_mul"), rows=(0, 7)), "split a gate from its up row"),
    "slot": (epilogue("argmax", slot=-1), "slot=-1"),
    "argmax of all rows": (forged(Gemv, at=of_epilogue("argmax"), x_rows="all"), "looks at the last row only"),
    "prompt length": (epilogue("argmax", prompt_length="stop"), "prompt_length is stop"),
    "heads of attention": (forged(Attention, heads=3), "3 heads do not share 2 KV heads"),
    "odd head": (forged(Attention, head_dim=7), "head_dim=7 has no halves to rotate"),
    "KV head": (forged(Attention, kv_head=2), "kv_head=2 of 2"),
    "split": (forged(Attention, SPLIT, split=2), "split=2 of 2"),
    "stats of one split": (forged(Attention, SPLIT, splits=1, split=0), "1 splits with stats"),
    "one cache": (forged(Attention, v_cache="L0.k_cache"), "k and v share the cache L0.k_cache"),
    "shape of the cache": (buffer("L0.k_cache", shape=(2, 32, 9)), "not 2 heads of 8"),
    "short cache": (buffer("L0.k_cache", shape=(2, 31, 8)), "which holds 31 of 32 positions"),
    "rope": (forged(Attention, rope="hidden"), "rope is hidden"),
    "no slots": (forged(Sample, slots=0), "slots=0"),
    "prompt": (forged(Sample, prompt="stop"), "prompt is stop"),
    "table": (buffer("model.embed_tokens.weight", shape=(24, 17)), "have 17 columns, not 16"),
    "token": (forged(Sample, token=Operand(buffer="stop")), "token is stop"),
    "stop is real": (buffer("stop", dtype="f32"), "stop is stop, of type f32"),
}


@pytest.mark.parametrize("name", KINDS)
def test_kinds(name: str) -> None:
    schedule, text = KINDS[name]
    verdict = validate(schedule)
    assert said(verdict, "AMK-V316", text), [str(finding) for finding in verdict.findings]


@pytest.mark.parametrize("part", ["reads", "writes", "streams"])
def test_a_schedule_cannot_lie(part: str) -> None:
    chosen = next(task for task in BASE.tasks if getattr(task, part))
    mutant = with_task(BASE, replace(chosen, **{part: getattr(chosen, part) * 2}))
    assert said(validate(mutant), "AMK-V316", f"states {part} that its kind does not derive")


def _alone(*accesses: Any, streams: Any = (), buffers: list[Buffer], waits: str = "c>=0") -> AccessModel:
    reads = [access for access in accesses if hasattr(access, "lag")]
    writes = [access for access in accesses if not hasattr(access, "lag")]
    return model([task("T", waits=waits, signals="c", reads=reads, writes=writes, streams=streams)], buffers=buffers)


FAR = Linear(terms=(("pos", 2**11),), base=0)
ODD = Linear(terms=(("pos", 1), ("pos", 1)), base=0)
OTHER = Linear(terms=(("batch", 1),), base=0)
REGIONS = {
    "no buffer": (_alone(write("a"), buffers=[]), "there is no such buffer"),
    "axes": (_alone(write("a", ONE, ONE), buffers=[state("a")]), "it has 2 axes, the buffer 1"),
    "symbol": (_alone(write("a", (0, OTHER)), buffers=[state("a")]), "unknown symbol 'batch'"),
    "tagged and moving": (
        _alone(write("a", (Linear(terms=(("pos", 1),)), 9)), buffers=[state("a", 9, tagged=True)]),
        "tagged words that move with pos",
    ),
    "coefficient": (_alone(write("a", (0, FAR)), buffers=[state("a", 2**30)]), "not in canonical form, or too large"),
    "not canonical": (_alone(write("a", (0, ODD)), buffers=[state("a", 99)]), "not in canonical form"),
    "outside": (_alone(write("a", (0, 2)), buffers=[state("a")]), "it is not inside an axis of 1"),
    "upside down": (_alone(write("a", (1, 0)), buffers=[state("a")]), "it is not inside"),
    "granule": (
        _alone(write("a", (1, 2)), buffers=[replace(state("a", 4), granule=2)]),
        "writes are multiples of the granule, 2",
    ),
    "moving granule": (
        _alone(write("a", (0, Linear(terms=(("pos", 1),), base=2))), buffers=[replace(state("a", 64), granule=2)]),
        "writes are multiples of the granule",
    ),
    "lag": (_alone(read("a", lag=2), write("a"), buffers=[state("a")]), "with lag 2; lags are 0 and 1"),
    "lag of KV": (_alone(read("KV", ONE, lag=1), buffers=[kv()]), "reads KV with a lag"),
    "version read": (_alone(read("a", v=1), write("a"), buffers=[state("a")]), "names version 1 of a, which has 1"),
    "version written": (_alone(write("a", v=1), buffers=[state("a")]), "names version 1 of a"),
    "streamed state": (
        _alone(write("a"), streams=[stream("a", ONE)], buffers=[state("a")]),
        "streams a: only weights, constants, inputs and plain kv",
    ),
    "tagged KV": (_alone(write("KV", ONE), buffers=[replace(kv(), tagged=True)]), "a kv buffer cannot be tagged"),
    "fenced, not tagged": (_alone(write("a"), buffers=[state("a", fenced=True)]), "fenced but not tagged"),
    "no axes": (_alone(write("a"), buffers=[state("a"), replace(state("b"), shape=())]), "b has no axes"),
}


@pytest.mark.parametrize("name", REGIONS)
def test_regions(name: str) -> None:
    bad, text = REGIONS[name]
    verdict = validate_model(bad)
    assert said(verdict, "AMK-V315", text), [str(finding) for finding in verdict.findings]


KV_ROWS = {
    "no rows told": (_alone(write("KV", ONE), buffers=[kv()]), "no axis carries pos"),
    "two axes": (
        _alone(
            write("KV", (Linear(terms=(("pos", 1),)), 9), (Linear(terms=(("pos", 1),)), 9)), buffers=[kv("KV", 9, 9)]
        ),
        "more than one axis carries pos",
    ),
    "tokens beside the rows": (
        _alone(
            write(
                "KV",
                (0, Linear(terms=(("tokens", 1),))),
                (Linear(terms=(("pos", 1),)), Linear(terms=(("pos", 1),), base=1)),
            ),
            buffers=[kv("KV", 9, 9)],
        ),
        "an axis beside the rows carries tokens",
    ),
    "half a block": (
        replace(
            _alone(
                write("KV", (Linear(terms=(("pos", 1),)), Linear(terms=(("pos", 1),), base=1))), buffers=[kv("KV", 32)]
            ),
            tokens=(1, 2),
        ),
        "its rows are not [pos, pos+tokens)",
    ),
    "rows that are not there": (
        _alone(
            read("KV", (0, Linear(terms=(("pos", 1),), base=2))),
            write("KV", (Linear(terms=(("pos", 1),)), Linear(terms=(("pos", 1),), base=1))),
            buffers=[kv("KV", 32)],
        ),
        "which holds rows that no step has written yet",
    ),
    "twice": (
        model(
            [
                task(
                    "A",
                    waits="c>=0",
                    writes=[write("KV", (Linear(terms=(("pos", 1),)), Linear(terms=(("pos", 1),), base=1)))],
                ),
                task(
                    "B",
                    signals="c",
                    writes=[write("KV", (Linear(terms=(("pos", 1),)), Linear(terms=(("pos", 1),), base=1)))],
                ),
            ],
            buffers=[kv("KV", 32)],
        ),
        "both write the rows of a step of KV",
    ),
}


@pytest.mark.parametrize("name", KV_ROWS)
def test_kv_rows(name: str) -> None:
    bad, text = KV_ROWS[name]
    verdict = validate_model(bad)
    assert said(verdict, "AMK-V305", text), [str(finding) for finding in verdict.findings]


def test_an_output_that_nobody_writes() -> None:
    out = Buffer(id="out", kind="output", dtype="f32", shape=(1,))
    verdict = validate_model(_alone(write("a"), buffers=[state("a"), out]))
    assert said(verdict, "AMK-V309", "no task writes the output out")


def test_too_many_pieces_are_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amk.validator.boxes.PIECES_MAX", 8)
    verdict = validate(BASE)
    assert verdict.outcome is Outcome.UNKNOWN
    assert said(verdict, "AMK-V390", "and 8 are looked at")


def test_an_order_that_does_not_settle_is_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amk.validator.order.SWEEPS_MAX", 1)
    verdict = validate(BASE)
    assert verdict.outcome is Outcome.UNKNOWN
    assert said(verdict, "AMK-V390", "did not settle in 1 sweeps")
