"""Schedule files: written in one form, read strictly, refused with the reason."""

from __future__ import annotations

import hashlib
import json
from collections import Counter as Tally
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from amk.errors import EXIT_USAGE, MalformedScheduleError, ScheduleVersionError, UnreadableInputError
from amk.ir import schedule as schedule_module
from amk.ir.schedule import SCHEDULE_VERSION, Schedule
from tests.builders import llama_graph, lower

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "tiny.schedule.json"


def tiny() -> Schedule:
    """A schedule small enough to read: one layer, one head, two workers."""
    graph = llama_graph(hidden=8, layers=1, heads=1, kv_heads=1, head_dim=8, intermediate=8, vocab=11)
    return lower(graph, workers=2, max_context=16, tokens_per_pass=2)


DATA = tiny().to_json()


def edited(change: Callable[[dict], object]) -> bytes:
    """The tiny schedule's JSON after ``change`` to its tree."""
    tree = json.loads(DATA)
    change(tree)
    return json.dumps(tree).encode()


def replaced(old: bytes, new: bytes) -> bytes:
    assert old in DATA
    return DATA.replace(old, new, 1)


def first_gemv(tree: dict) -> dict:
    return next(task["op"] for task in tree["tasks"] if task["op"]["kind"] == "gemv")


# --- what is written -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 3, 40])
def test_round_trip(workers: int) -> None:
    schedule = lower(llama_graph(tied=False), workers=workers, bf16_kv=True)
    data = schedule.to_json()
    again = Schedule.from_json(data)
    assert again == schedule
    assert again.to_json() == data
    assert again.digest() == schedule.digest() == hashlib.sha256(data).hexdigest()


def test_the_form_is_canonical() -> None:
    assert b" " not in DATA
    assert b"\n" not in DATA
    json.loads(DATA, object_pairs_hook=assert_sorted)


def assert_sorted(pairs: list[tuple[str, object]]) -> None:
    names = [name for name, _ in pairs]
    assert names == sorted(set(names))


def test_any_spelling_of_a_schedule_is_that_schedule() -> None:
    tree = json.loads(DATA)
    backwards = dict(reversed(tree.items()))
    spelled = json.dumps(backwards, indent=2).encode()
    assert spelled != DATA
    assert Schedule.from_json(spelled) == tiny()
    assert Schedule.from_json(spelled).digest() == tiny().digest()


def test_a_field_at_its_default_may_be_written() -> None:
    explicit = edited(lambda tree: tree.update(devices=1, sequences=1))
    assert Schedule.from_json(explicit).digest() == tiny().digest()


def test_two_lowerings_give_the_same_bytes() -> None:
    assert tiny().to_json() == DATA
    assert lower(llama_graph(), workers=5).digest() == lower(llama_graph(), workers=5).digest()


def test_the_digest_is_of_everything() -> None:
    schedule = tiny()
    variants = [
        schedule,
        replace(schedule, max_context=17),
        replace(schedule, steps_max=1),
        replace(schedule, target=replace(schedule.target, drift=1)),
        replace(schedule, queues=schedule.queues[::-1]),
        replace(schedule, tasks=(replace(schedule.tasks[0], waits=()), *schedule.tasks[1:])),
    ]
    assert len({variant.digest() for variant in variants}) == len(variants)


def test_the_golden_schedule(update_golden: bool) -> None:
    if update_golden:
        GOLDEN.write_bytes(DATA)
    stored = GOLDEN.read_bytes()
    before, now = Schedule.from_json(stored, path=GOLDEN), tiny()
    assert now.buffers == before.buffers
    for old, new in zip(before.tasks, now.tasks, strict=True):
        assert new == old
    assert now.digest() == before.digest() == hashlib.sha256(stored).hexdigest()


def test_lookups() -> None:
    schedule = tiny()
    assert schedule.buffer["hidden"].shape == (2, 8)
    assert schedule.task["sample#0"].op.writes(schedule.buffer) == schedule.task["sample#0"].writes
    assert schedule.symbol("pos").high == 15
    assert schedule.symbol("tokens").high == 2
    with pytest.raises(KeyError, match="time"):
        schedule.symbol("time")
    signals = Tally(counter for task in schedule.tasks for counter in task.signals)
    assert schedule.signals_per_step == signals


# --- what is refused -------------------------------------------------------------------------------------------------

DEEP = b"[" * 100_000 + b"]" * 100_000

MALFORMED = {
    "empty": (b"", "truncated"),
    "not JSON": (b"MThd", "malformed"),
    "cut short": (DATA[:-1], "truncated"),
    "something behind it": (DATA + b"{}", "trailing characters"),
    "not an object": (b"[1]", "Expected `object`, got `array`"),
    "not UTF-8": (replaced(b'"cpu"', b'"\xff\xfe"'), "Invalid UTF-8"),
    "no version": (b'{"tasks":[]}', "missing required field `version`"),
    "version a word": (replaced(b'"version":1', b'"version":"1"'), "Expected `int`, got `str`"),
    "version a bool": (replaced(b'"version":1', b'"version":true'), "Expected `int`, got `bool`"),
    "duplicate key": (replaced(b'"max_context":16', b'"max_context":16,"max_context":16'), "'max_context' occurs"),
    "duplicate key within": (replaced(b'"base":-1', b'"base":-1,"base":-1'), "'base' occurs twice"),
    "unknown field": (replaced(b'"max_context"', b'"author":"me","max_context"'), "unknown field `author`"),
    "unknown field within": (edited(lambda tree: tree["counters"][0].update(hue=1)), "unknown field `hue`"),
    "missing field": (edited(lambda tree: tree.pop("queues")), "missing required field `queues`"),
    "missing field within": (edited(lambda tree: first_gemv(tree).pop("weight")), "missing required field `weight`"),
    "wrong kind": (replaced(b'"kind":"gemv"', b'"kind":"conv"'), "Invalid value 'conv'"),
    "no kind": (edited(lambda tree: first_gemv(tree).pop("kind")), "missing required field `kind`"),
    "wrong prologue": (replaced(b'"kind":"norm"', b'"kind":"group_norm"'), "Invalid value 'group_norm'"),
    "wrong buffer kind": (edited(lambda tree: tree["buffers"][0].update(kind="scratch")), "Invalid enum value"),
    "wrong scope": (edited(lambda tree: tree["counters"][0].update(scope="cluster")), "Invalid enum value 'cluster'"),
    "bool as int": (replaced(b'"max_context":16', b'"max_context":true'), "Expected `int`, got `bool`"),
    "float as int": (replaced(b'"max_context":16', b'"max_context":16.5'), "Expected `int`, got `float`"),
    "word as int": (replaced(b'"max_context":16', b'"max_context":"16"'), "Expected `int`, got `str`"),
    "null": (replaced(b'"max_context":16', b'"max_context":null'), "Expected `int`, got `null`"),
    "zero": (replaced(b'"max_context":16', b'"max_context":0'), "Expected `int` >= 1"),
    "too large": (replaced(b'"max_context":16', b'"max_context":2147483648'), "Expected `int` <"),
    "huge": (edited(lambda tree: tree.update(max_context=10**400)), "Expected `int` <"),
    "huge threshold": (edited(lambda tree: tree["tasks"][0]["waits"][0].update(threshold=2**31)), "Expected `int` <"),
    "empty buffer": (edited(lambda tree: tree["buffers"][0].update(shape=[0])), "Expected `int` >= 1"),
    "NaN": (replaced(b'"eps":0.00001', b'"eps":NaN'), "malformed"),
    "Infinity": (replaced(b'"eps":0.00001', b'"eps":Infinity'), "malformed"),
    "1e999": (replaced(b'"eps":0.00001', b'"eps":1e999'), "out of range"),
    "an interval of three": (edited(lambda tree: first_gemv(tree).update(rows=[0, 8, 16])), "length 2"),
    "nested deeply": (replaced(b'"max_context":16', b'"max_context":' + DEEP), "nested too deeply"),
    "nested deeply, unknown": (replaced(b'"max_context"', b'"a":' + DEEP + b',"max_context"'), "nested too deeply"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "why"), MALFORMED.values(), ids=MALFORMED)
def test_malformed(data: bytes, why: str) -> None:
    with pytest.raises(MalformedScheduleError) as caught:
        Schedule.from_json(data, path="plans/mine.json")
    assert str(caught.value).startswith("AMK-S401 plans/mine.json is not a schedule: ")
    assert why in str(caught.value)
    assert caught.value.exit_code == EXIT_USAGE


def test_the_message_says_where() -> None:
    data = edited(lambda tree: tree["tasks"][3].update(id=7))
    with pytest.raises(MalformedScheduleError, match=r"got `int` - at `\$\.tasks\[3\]\.id`"):
        Schedule.from_json(data)


@pytest.mark.parametrize("version", [0, 2, -1, 10**6])
def test_another_version(version: int) -> None:
    # The rest of the file may be anything: only the version is looked at.
    data = json.dumps({"version": version, "tapes": [], "target": None}).encode()
    with pytest.raises(ScheduleVersionError) as caught:
        Schedule.from_json(data, path="new.json")
    assert str(caught.value).startswith(f"AMK-S402 new.json has schedule version {version};")
    assert f"reads version {SCHEDULE_VERSION}" in str(caught.value)


def test_oversized(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule_module, "MAX_FILE_BYTES", len(DATA) - 1)
    with pytest.raises(MalformedScheduleError, match=f"AMK-S401.*more than {len(DATA) - 1} bytes"):
        Schedule.from_json(DATA)
    monkeypatch.setattr(schedule_module, "MAX_FILE_BYTES", len(DATA))
    assert Schedule.from_json(DATA) == tiny()


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_file_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "schedule.json"
    path.write_bytes(DATA)
    assert Schedule.load(path) == tiny()


def test_a_malformed_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "schedule.json"
    path.write_bytes(b"{")
    with pytest.raises(MalformedScheduleError, match=f"AMK-S401 {path}"):
        Schedule.load(path)


@pytest.mark.parametrize(("name", "why"), [("absent.json", "No such file"), (".", "Is a directory")])
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(UnreadableInputError, match=why):
        Schedule.load(tmp_path / name)
