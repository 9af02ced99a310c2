"""The kernel under watch, and proof that the watches see: each fault planted in its source is caught by one of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace as with_fields

from amk.codegen.emit import CudaSource, emit
from amk.errors import DeviceError
from amk.ir.passes.tile import Tile
from amk.pipeline import CompiledModel
from amk.runtime.errors import HostCrashError
from tests.host.conftest import PROMPT, TWINS, Compile
from tests.host.footprints import Log, strays
from tests.host.obligations import broken
from tests.host.running import Forced, decoded, edited, open_host

KERNEL, PRODUCER, BLOCK = "vm/kernel.cuh", "vm/producer.cuh", "vm/block.cuh"
GEMV, INPUT, STEP = "ops/gemv.cuh", "ops/gemv_input.cuh", "ops/attention_step.cuh"
ATTENTION, SHORT = "ops/attention_rows.cuh", "ops/attention_short.cuh"

DROPPED_WAIT = (
    BLOCK,
    "if (thread == kThreads - kWarp) {\n      const u64 start",
    "if (false) {\n      const u64 start",
)
NO_MEETING_BEHIND_WAITS = (BLOCK, "meet();\n    begun(head);", "begun(head);")
NO_MEETING_BEFORE_SUMS = (GEMV, "if (!block.meet()) return false;\n      finish(", "finish(")
NO_MEETING_BEHIND_TASK = (STEP, "finish();\n    return block.meet();", "finish();\n    return block.good;")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Passages of the source to change, and what the watch then says."""

    edits: tuple[tuple[str, str, str], ...]
    says: str
    watchdog_s: float = 30.0

    def plant(self, source: CudaSource) -> CudaSource:
        for path, old, new in self.edits:
            source = edited(source, path, old, new)
        return source


def race(*edits: tuple[str, str, str], says: str = "ThreadSanitizer: data race", watchdog_s: float = 30.0) -> Fault:
    return Fault(edits=edits, says=says, watchdog_s=watchdog_s)


RACES = {
    # Seen as a race, or by those whose words are overwritten before they have read them.
    "V3: a dropped wait": race(DROPPED_WAIT, says="data race|words of epoch", watchdog_s=2.0),
    "V3: threads that do not meet the one that waited": race(NO_MEETING_BEHIND_WAITS),
    "V5: a signal that releases nothing": race(
        (
            "prim/memory.cuh",
            "__atomic_fetch_add(address, value, __ATOMIC_RELEASE)",
            "__atomic_fetch_add(address, value, __ATOMIC_RELAXED)",
        )
    ),
    "V5: a wait that acquires nothing": race(
        (
            "prim/memory.cuh",
            "__atomic_load_n(address, __ATOMIC_ACQUIRE)",
            "__atomic_load_n(address, __ATOMIC_RELAXED)",
        )
    ),
    "V2: a signal before all warps are done": race(NO_MEETING_BEHIND_TASK),
    "a missing barrier": race(NO_MEETING_BEFORE_SUMS),
    "sums made where the last task's are still added": race(
        (
            BLOCK,
            "u32 half(const TaskHead& head) const { return slot(head) % 2; }",
            "u32 half(const TaskHead&) const { return 0; }",
        )
    ),
    "values added before all warps have weighed them": race(
        (STEP, "if (!block.meet()) return false;\n      block.identify();", "block.identify();")
    ),
    "strips put together before all warps have summed theirs": race(
        (SHORT, "if (!block.meet()) return false;\n    block.identify();\n    this->append();", "this->append();")
    ),
    "columns multiplied before all lanes have staged theirs": race(
        (INPUT, "warp_sync();  // each lane reads what others of its warp have put", "")
    ),
    "a stale ring stage": race(
        (PRODUCER, "if (wrapped && !landed(&shared.ring_empty[piece.stage()], piece.parity() ^ 1)) return false;", ""),
        says="data race|ran out",
        watchdog_s=2.0,  # overwritten in use, or twice before it is used: then a barrier is two phases on
    ),
    "a stage given back before all lanes have read it": race(
        (
            BLOCK,
            "warp_sync();\n    if (lane == 0) mbarrier_arrive(&shared.ring_empty",
            "if (lane == 0) mbarrier_arrive(&shared.ring_empty",
        )
    ),
    "a copy engine that was not told of what was acquired": race((PRODUCER, "copy_acquired();", "")),
    "a slot refilled while lanes of the producer read it": race(
        (PRODUCER, "warp_sync();  // every lane has read what lay in the slot before: a vote orders no memory", "")
    ),
}


@pytest.mark.parametrize("small", [True, False], ids=["small", "all warps"])
@pytest.mark.parametrize(("seed", "dtype"), [(0, "bf16"), (1, "bf16"), (1, "w8a16")])
def test_no_race(seed: int, dtype: str, small: bool, compiled: Compile) -> None:
    model = compiled(layers=2 if small else 1, small=small, dtype=dtype)
    with open_host(model, watch="threads", seed=seed) as session:
        made, _ = decoded(session, PROMPT, 4)
    assert made == decoded(model.session, PROMPT, 4)[0]


def test_no_race_from_run_to_run(compiled: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amk.codegen.config.RUN_STRIPS_MAX", 1)
    model, prompt = compiled(layers=1, small=True), [*range(40)]
    with open_host(model, watch="threads", seed=1) as session:
        made, _ = decoded(session, prompt, 2)
    assert made == decoded(model.machine_session(), prompt, 2)[0]


RUNS = race((STEP, "if (!block.meet()) return false;  // before the next run's weights", ""))


def test_a_race_from_run_to_run_is_seen(compiled: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amk.codegen.config.RUN_STRIPS_MAX", 1)
    model = compiled(layers=1, small=True)
    source = RUNS.plant(emit(model._validated))
    with open_host(model, source, watch="threads", seed=1) as session, pytest.raises(DeviceError, match=RUNS.says):
        decoded(session, [*range(40)], 2)


@pytest.mark.parametrize("fault", RACES.values(), ids=RACES)
def test_a_race_is_seen(fault: Fault, compiled: Compile) -> None:
    model = compiled(layers=2, small=True)
    source = fault.plant(emit(model._validated))
    with (
        open_host(model, source, watch="threads", seed=1, watchdog_s=fault.watchdog_s) as session,
        pytest.raises(DeviceError, match=fault.says),
    ):
        decoded(session, PROMPT, 4)


def test_a_tag_that_is_not_looked_at_shows_in_the_bits(compiled: Compile) -> None:
    """V3: what a word holds before it is written is the last step's, or zero."""
    model = compiled(layers=2)
    expected = decoded(model.session, PROMPT, 4)
    source = edited(emit(model._validated), "vm/values.cuh", "missing |= word.epoch ^ epoch;", "")
    seen = []
    for seed in range(12):  # in some orders it has come all the same
        with open_host(model, source, seed=seed) as session:
            made, logits = decoded(session, PROMPT, 4)
        seen.append(made == expected[0] and torch.equal(logits, expected[1]))
        if not seen[-1]:
            return
    pytest.fail("not seen in any order")


@pytest.mark.parametrize(
    ("twin", "options"),
    [(twin, {}) for twin in TWINS] + [("odd sizes", {"dtype": "w8a16", "group_size": size}) for size in (0, 64)],
)
def test_no_address_is_wrong(twin: str, options: dict[str, object], compiled: Compile) -> None:
    model = compiled(twin, layers=2, **options)
    with open_host(model, watch="addresses", seed=1) as session:
        made, _ = decoded(session, PROMPT, 4)
    assert made == decoded(model.session, PROMPT, 4)[0]


ADDRESSES = {
    "a tile one row too far": (
        GEMV,
        "if (!there || weight_row >= task.row_end) return found;",
        "if (!there || weight_row > task.row_end) return found;",
    ),
    "a row of shared memory behind the last": (
        INPUT,
        "*reinterpret_cast<uint4*>(staged + place) = pairs;",
        "*reinterpret_cast<uint4*>(staged + place + 60000) = pairs;",
    ),
}


@pytest.mark.parametrize("edit", ADDRESSES.values(), ids=ADDRESSES)
def test_a_wrong_address_is_seen(edit: tuple[str, str, str], compiled: Compile) -> None:
    model = compiled("odd sizes")
    source = edited(emit(model._validated), *edit)
    with (
        open_host(model, source, watch="addresses") as session,
        pytest.raises(HostCrashError, match=r"AddressSanitizer|UndefinedBehavior|runtime error"),
    ):
        decoded(session, PROMPT, 2)


def findings(
    model: CompiledModel,
    folder: Path,
    *,
    source: CudaSource | None = None,
    seed: int = 0,
    validated: Forced | None = None,
) -> tuple[list[str], list[str]]:
    """(strays, broken obligations) over a prompt's two passes and two tokens, each a launch of one step."""
    found: tuple[list[str], list[str]] = ([], [])
    folder.mkdir(exist_ok=True)
    path = folder / "footprints"
    with open_host(model, source, watch="footprints", seed=seed, log=path, validated=validated) as session:
        backend = session.backend
        log = Log(backend, path)
        backend.begin(PROMPT, [])
        backend.enter(PROMPT[:8])
        pos = 0
        for tokens in (8, 3, 1, 1):
            records = log.launch(pos=pos, tokens=tokens)
            found[0].extend(map(str, strays(log, records, {"pos": pos, "tokens": tokens})))
            found[1].extend(broken(log, records))
            pos += tokens
    return found


@pytest.mark.parametrize("kv_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("twin", TWINS)
def test_every_task_touches_what_it_declares(twin: str, kv_dtype: str, compiled: Compile, tmp_path: Path) -> None:
    assert findings(compiled(twin, layers=2, kv_dtype=kv_dtype), tmp_path) == ([], [])


@pytest.mark.parametrize("group_size", [0, 64])
@pytest.mark.parametrize("twin", TWINS)
def test_every_task_of_eight_bit_weights_does_too(
    twin: str, group_size: int, compiled: Compile, tmp_path: Path
) -> None:
    assert findings(compiled(twin, layers=2, dtype="w8a16", group_size=group_size), tmp_path) == ([], [])


@pytest.mark.parametrize("seed", range(1, 6))
def test_the_machine_keeps_its_obligations_in_any_order(seed: int, compiled: Compile, tmp_path: Path) -> None:
    assert findings(compiled(layers=2), tmp_path, seed=seed) == ([], [])


STRAYS = {
    "a tile one row too far": Fault(
        edits=(
            (
                GEMV,
                "if (!there || weight_row >= task.row_end) return found;",
                "if (!there || weight_row > task.row_end) return found;",
            ),
        ),
        says="touches what lies behind|writes undeclared",
    ),
    "an undeclared read": Fault(
        edits=(
            (
                ATTENTION,
                "static_cast<u64>(block.pos + row) * task.rotary",
                "static_cast<u64>(block.pos + block.tokens) * task.rotary",
            ),
        ),
        says="reads undeclared: .*rope",
    ),
    "a declared write that is not made": Fault(
        edits=((GEMV, "logits[row] = 0.0f;", "logits[row - row % 2] = 0.0f;"),),
        says="does not write",
    ),
    "a step's own row that is not kept": Fault(
        edits=((ATTENTION, "keep(task.k_cache", "if (row != 0) keep(task.k_cache"),),
        says="does not write: .*k_cache",
    ),
}


def test_an_undeclared_read_of_scales_is_seen(compiled: Compile, tmp_path: Path) -> None:
    edit = (
        GEMV,
        "reinterpret_cast<const float*>(task.scales)[weight_row]",
        "reinterpret_cast<const float*>(task.scales)[0]",
    )
    model = compiled(layers=1, dtype="w8a16")
    source = Fault(edits=(edit,), says="").plant(emit(model._validated))
    strays, _ = findings(model, tmp_path, source=source)
    assert any(re.search(r"reads undeclared: .*\.scales", stray) for stray in strays)


@pytest.mark.parametrize("fault", STRAYS.values(), ids=STRAYS)
def test_a_stray_access_is_seen(
    fault: Fault, compiled: Compile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of plain data: a word that a stray write has given another epoch is waited for in vain, and nothing is logged.
    monkeypatch.setitem(Tile.__init__.__kwdefaults__, "tagged_words", 0)
    model = compiled("odd sizes")
    found, _ = findings(model, tmp_path, source=fault.plant(emit(model._validated)))
    assert [text for text in found if re.search(fault.says, text)], found[:5]


MEETS = NO_MEETING_BEHIND_WAITS[1]
OBLIGATIONS = {
    "V1": Fault(
        edits=((BLOCK, MEETS, f"if (head.wait_count != 0) {MEETS}"),), says="V1: .* stores before .* is published"
    ),
    "V2": Fault(edits=(NO_MEETING_BEHIND_TASK,), says="V2: .* signals before its last access"),
    "V3": Fault(edits=(DROPPED_WAIT,), says="V3: .* makes 0 of its 1 waits"),
    "V3 of a stream": Fault(
        edits=((PRODUCER, "open = wait_counter(params,", "open = true || wait_counter(params,"),),
        says="V3: .*attention.* makes 0 of its 1 waits",
    ),
    "V4": Fault(edits=(NO_MEETING_BEHIND_WAITS, NO_MEETING_BEFORE_SUMS), says="V4: .* begins before .* is published"),
    "V5": Fault(
        edits=(
            (
                KERNEL,
                "if (block.thread == 0) {\n        u32* counters",
                "if (block.lane == 0) {\n        u32* counters",
            ),
        ),
        says="V5: .* signals 4 times, not 1",
    ),
}


@pytest.mark.parametrize("obligation", OBLIGATIONS)
def test_a_broken_obligation_is_seen(
    obligation: str, compiled: Compile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of plain data alone: whoever is too early overwrites words that others wait for, and nothing is left to judge.
    monkeypatch.setitem(Tile.__init__.__kwdefaults__, "tagged_words", 0)
    model = compiled(layers=2)
    # V1 speaks of tasks that wait for nothing, which stand behind no other's signals in what the compiler makes.
    waitless = tuple(
        with_fields(task, waits=()) if task.id.startswith("L0.attention") else task for task in model.schedule.tasks
    )
    schedule = with_fields(model.schedule, tasks=waitless) if obligation == "V1" else model.schedule
    forced, fault = Forced(schedule=schedule), OBLIGATIONS[obligation]
    sound, faulty = emit(forced), fault.plant(emit(forced))
    seen: list[str] = []
    for seed in range(12):  # in some orders what is broken does no harm
        assert findings(model, tmp_path / f"sound {seed}", source=sound, seed=seed, validated=forced)[1] == []
        seen += findings(model, tmp_path / f"faulty {seed}", source=faulty, seed=seed, validated=forced)[1]
        if any(re.search(fault.says, text) for text in seen):
            return
    pytest.fail(f"not seen; but {seen[:5]}")


@pytest.mark.parametrize("seed", range(3))
def test_a_warp_that_drifts_ahead_is_seen(seed: int, compiled: Compile) -> None:
    """It does not wait at meetings, so it is at the next ones while the others are still at this one."""
    model = compiled(layers=2)
    meets = "good = meet_all(kThreads, good);"
    source = edited(emit(model._validated), BLOCK, meets, f"if (warp != 1) {meets}")
    with (
        open_host(model, source, seed=seed, watchdog_s=1.0) as session,
        pytest.raises(DeviceError, match=r"its own block|wait for each other|words of epoch"),
    ):
        decoded(session, PROMPT, 4)
    with (
        open_host(model, source, watch="threads", seed=seed, watchdog_s=1.0) as session,
        pytest.raises(DeviceError, match=r"data race|its own block|wait for each other|words of epoch"),
    ):
        decoded(session, PROMPT, 4)
