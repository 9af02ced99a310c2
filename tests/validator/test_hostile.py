"""Hostile files through the command itself: a clear refusal, in bounded time and memory, whatever they hold.

Each runs in a process of its own whose address space is limited, so that a file that costs more than it should fails
here and not on somebody's machine.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from amk.cli.app import main
from amk.errors import EXIT_FAILED, EXIT_USAGE, ScheduleFileError
from amk.ir.buffers import Buffer, Operand
from amk.ir.schedule import MAX_FILE_BYTES, Schedule, Stream, Task, Wait
from amk.ir.tasks import Gemv, Store
from amk.validator import Outcome, validate
from tests.builders import llama_graph, lower
from tests.validator.changes import with_task

SMALL = lower(
    llama_graph(hidden=8, layers=1, heads=1, kv_heads=1, head_dim=8, intermediate=8, vocab=11),
    workers=2,
    max_context=16,
)
DATA = SMALL.to_json()
MB = 1 << 20
HUNDRED = 100 * MB
MEMORY_MAX = 3 << 30
SECONDS_MAX = 120

HEAD = b'{"version":1,'
BOMBS = {
    "100 MB of brackets": lambda: b"[" * HUNDRED,
    "100 MB of brackets in a field": lambda: HEAD + b'"tasks":' + b"[" * HUNDRED,
    "100 MB of braces": lambda: b'{"a":' * (HUNDRED // 5),
    "100 MB of blanks": lambda: b" " * HUNDRED,
    "100 MB of one word": lambda: HEAD + b'"target":"' + b"a" * HUNDRED + b'"}',
    "100 MB of digits": lambda: HEAD + b'"max_context":' + b"9" * HUNDRED + b"}",
    "100 MB of numbers": lambda: HEAD + b'"tasks":[' + b"7," * (HUNDRED // 2) + b"7]}",
    "100 MB of unknown keys": lambda: HEAD + b",".join(b'"%d":1' % n for n in range(HUNDRED // 12)) + b"}",
    "100 MB of one key": lambda: HEAD + b'"devices":1,' * (HUNDRED // 12) + b'"devices":1}',
    "100 MB of empty tasks": lambda: HEAD + b'"tasks":[' + b"{}," * (HUNDRED // 3) + b"{}]}",
    "100 MB behind a schedule": lambda: DATA + b" " * HUNDRED + b"{}",
    "100 MB of counters": lambda: DATA.replace(
        b'"counters":[', b'"counters":[' + b",".join(b'{"id":"x%d"}' % n for n in range(HUNDRED // 16)) + b","
    ),
    "100 MB of zeros": lambda: b"\0" * HUNDRED,
}


def command(path: Path) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))

    call = [sys.executable, "-m", "amk.cli.app", "validate", str(path)]
    return subprocess.run(call, check=False, capture_output=True, text=True, timeout=SECONDS_MAX, preexec_fn=limit)


@pytest.mark.parametrize("name", BOMBS)
def test_a_large_file_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bomb.json"
    path.write_bytes(BOMBS[name]())
    done = command(path)
    path.unlink()
    told = done.stdout + done.stderr
    assert "Traceback" not in told
    # Six million counters are a schedule, and more than a launch holds.
    if name == "100 MB of counters":
        assert done.returncode == EXIT_FAILED, told[-2000:]
        assert "counters, at most" in told
    else:
        assert done.returncode == EXIT_USAGE, told[-2000:]
        assert "AMK-S401" in told


def test_a_file_past_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "sparse.json"
    with path.open("wb") as stream:
        stream.truncate(64 * MAX_FILE_BYTES)  # sixteen gigabytes, none of them on the disk
    done = command(path)
    assert done.returncode == EXIT_USAGE
    assert "AMK-S401" in done.stderr + done.stdout


def test_workers_that_wait_in_a_circle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (SMALL.task[queue.tasks[0]] for queue in SMALL.queues)
    circle = with_task(SMALL, replace(first, waits=(Wait(counter="b", threshold=1),), signals=("a",)))
    circle = with_task(circle, replace(second, waits=(Wait(counter="a", threshold=1),), signals=("b",)))
    counters = tuple(replace(SMALL.counters[0], id=name) for name in "ab")
    path = tmp_path / "circle.json"
    path.write_bytes(replace(circle, counters=(*SMALL.counters, *counters)).to_json())
    assert main(["validate", str(path), "--json"]) == EXIT_FAILED
    findings = json.loads(capsys.readouterr().out)["findings"]
    told = next(finding["what"] for finding in findings if finding["code"] == "AMK-V302")
    for part in (first.id, second.id, "(a, 1)", "(b, 1)", "worker 0", "worker 1"):
        assert part in told


def test_a_schedule_of_ever_other_regions_is_left_open() -> None:
    """Tasks no two of which touch the same box: pairs of boxes grow with the square of the file."""
    tasks, count = [], 4000
    matrix = Buffer(id="matrix", kind="weight", dtype="bf16", shape=(count + 1, count + 1))
    row = Buffer(id="row", kind="state", dtype="f32", shape=(8, count + 1))
    buffers = {**SMALL.buffer, "matrix": matrix, "row": row}
    for n in range(count):
        out = Store(out=Operand(buffer="row"))
        op = Gemv(x=Operand(buffer="row", lag=1), k=n + 1, weight="matrix", rows=(n, n + 1), epilogue=out)
        streams = tuple(Stream(region=region) for region in op.streams(buffers))
        tasks.append(Task(id=f"t{n}", op=op, reads=op.reads(buffers), writes=op.writes(buffers), streams=streams))
    first = SMALL.queues[0]
    grown = replace(first, tasks=(*first.tasks, *(task.id for task in tasks)))
    schedule = replace(
        SMALL,
        buffers=tuple(buffers.values()),
        tasks=(*SMALL.tasks, *tasks),
        queues=(grown, *SMALL.queues[1:]),
    )
    tracemalloc.start()
    verdict = validate(schedule)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert verdict.outcome is Outcome.UNKNOWN
    assert "pairs of regions that may meet" in verdict.findings[0].what
    assert peak < 512 * MB


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    cuts=st.lists(
        st.tuples(
            st.integers(0, len(DATA)), st.integers(0, 12), st.one_of(st.binary(max_size=12), st.text(max_size=6))
        ),
        min_size=1,
        max_size=4,
    )
)
@example(cuts=[(0, 0, b"\xef\xbb\xbf")])
@example(cuts=[(0, len(DATA), "null")])
def test_bytes_that_were_tampered_with_are_refused_or_get_a_verdict(cuts: list) -> None:
    data = DATA
    for at, length, new in cuts:
        data = data[:at] + (new.encode() if isinstance(new, str) else new) + data[at + length :]
    try:
        schedule = Schedule.from_json(data)
    except ScheduleFileError:
        return
    verdict = validate(schedule)
    assert verdict.proved or verdict.findings
