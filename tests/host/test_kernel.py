"""The kernel's own source on this processor: exact in any order of its threads, and never the end of the caller."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from msgspec.structs import replace as with_fields

from amk.codegen.emit import emit
from amk.codegen.errors import CompileFailedError, NoHostCompilerError
from amk.errors import EXIT_FAILED
from amk.ir.schedule import Task
from amk.parity.fuzz import fuzz
from amk.runtime.errors import HostCrashError, HostMemoryError, WatchdogError
from amk.runtime.kernel import host_kernel
from amk.target import TARGETS
from tests.gpu.diff import differences
from tests.host.conftest import PROMPT, SMALL, TWINS, Compile
from tests.host.running import Forced, decoded, edited, open_host

SEEDS = 20


@pytest.mark.parametrize("twin", ["gqa 9/3, hidden 576", "hidden 64, 5 layers"])
def test_every_order_gives_the_reference_machines_tokens_and_the_same_bits(twin: str, compiled: Compile) -> None:
    model = compiled(twin)
    runs = list(fuzz(model, tokens=32, seeds=SEEDS))
    assert [(run.seed, run.differs) for run in runs] == [(seed, "") for seed in range(SEEDS + 1)]
    machine = model.machine_session()
    expected, logits = decoded(machine, PROMPT, 32)
    launches = model.session.backend.launches
    made, ours = decoded(model.session, PROMPT, 32)
    assert model.session.backend.launches == launches + 3  # two of the prompt, one of 31 tokens
    assert made == expected
    assert float((ours - logits).abs().max()) < 2e-4 * float(logits.abs().max())


@pytest.mark.parametrize("kv_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("twin", TWINS)
def test_no_task_differs_from_the_reference_machine(twin: str, kv_dtype: str, compiled: Compile) -> None:
    model = compiled(twin, kv_dtype=kv_dtype)
    assert [str(found) for found in differences(model, PROMPT, tokens=3)] == []


def test_a_warp_that_no_query_is_left_for(compiled: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four queries are two sets, of one warp each: the third has none."""
    monkeypatch.setitem(SMALL, "consumer_warps", 3)
    monkeypatch.setitem(TWINS, "4/1", {"num_attention_heads": 4, "num_key_value_heads": 1})
    model = compiled("4/1", layers=1, small=True)
    assert model.schedule.target.consumer_warps == 3
    assert [str(found) for found in differences(model, PROMPT, tokens=3)] == []


@pytest.mark.parametrize("strips", [1, 9])
@pytest.mark.parametrize("kv_dtype", ["float32", "bfloat16"])
def test_a_prompt_in_short_and_long_runs(
    strips: int, kv_dtype: str, compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a run is one strip, a step's own rows are a run of their own; here a warp has shares of two sets."""
    monkeypatch.setattr("amk.codegen.config.RUN_STRIPS_MAX", strips)
    monkeypatch.setitem(TWINS, "8/1", {"num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 40})
    model = compiled("8/1", layers=1, kv_dtype=kv_dtype)
    assert model.session.backend.config.run_strips == strips
    prompt = [(5 * i * i) % 131 for i in range(75)]
    assert [str(found) for found in differences(model, prompt, tokens=1)] == []


def test_a_wrong_weight_is_named(compiled: Compile) -> None:
    model = compiled(layers=2)
    session = model.machine_session()
    session.backend.memory["model.layers.1.mlp.down_proj.weight"][0] *= 1.5
    model.machine_session = lambda: session
    assert next(differences(model, PROMPT, tokens=1)).task == "L1.down#0"


def test_a_long_context_in_one_and_in_all_splits(compiled: Compile) -> None:
    model = compiled(layers=1, context=1100)
    machine = model.machine_session()
    for length in (64, 65, 548, 1050):
        prompt = [(5 * i * i + length) % 131 for i in range(length)]
        for session in (model.session, machine):
            session.prefill(prompt)
        ours, theirs = model.session.logits(), machine.logits()
        assert float((ours - theirs).abs().max()) < 2e-4 * float(theirs.abs().max()), length


def test_a_chips_own_warps(compiled: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many consumer warps, ring stages and staged columns as an H200 has; its workers would be 132 threads."""
    monkeypatch.setitem(TARGETS, "h200", with_fields(TARGETS["h200"], workers=8))
    model = compiled(layers=2, target="h200")
    assert (len(model.schedule.queues), model.schedule.target.consumer_warps) == (8, 16)
    runs = list(fuzz(model, tokens=8, seeds=2))
    assert [run.differs for run in runs] == [""] * 3
    assert decoded(model.session, PROMPT, 8)[0] == decoded(model.machine_session(), PROMPT, 8)[0]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_copies_by_the_lanes_of_a_warp(seed: int, compiled: Compile) -> None:
    """The producer of sm_80: every lane copies its share and arrives."""
    model = compiled(layers=2)
    source = emit(model._validated)
    lanes = replace(source, headers={**source.headers, "copy.cuh": source.headers["prim/async/copy.cuh"]})
    expected, logits = decoded(model.session, PROMPT, 12)
    with open_host(model, lanes, seed=seed) as session:
        made, ours = decoded(session, PROMPT, 12)
    assert made == expected
    assert torch.equal(ours, logits)


def test_a_lost_signal_ends_in_an_error_that_names_it(compiled: Compile) -> None:
    model = compiled(layers=2)
    victim = next(task.id for task in model.schedule.tasks if task.id.startswith("L1.attention"))
    tasks = tuple(with_fields(t, signals=()) if t.id == victim else t for t in model.schedule.tasks)
    forced = Forced(schedule=with_fields(model.schedule, tasks=tasks))
    with open_host(model, validated=forced, watchdog_s=0.5) as session:
        for _ in range(2):
            with pytest.raises(WatchdogError, match=r"step 0\) waits for L1\.attention to reach 8; it is at 7"):
                session.prefill(PROMPT)


def test_words_that_do_not_come_end_in_an_error_that_names_their_reader(compiled: Compile) -> None:
    model = compiled(layers=2)

    def stale(task: Task) -> Task:
        """Words of layer 1 that carry the epoch of layer 0's."""
        out = with_fields(task.op.epilogue.out, version=0)
        return with_fields(task, op=with_fields(task.op, epilogue=with_fields(task.op.epilogue, out=out)))

    tasks = tuple(stale(t) if t.id == "L1.qkv#0" else t for t in model.schedule.tasks)
    forced = Forced(schedule=with_fields(model.schedule, tasks=tasks))
    with open_host(model, validated=forced, watchdog_s=0.5) as session:
        for _ in range(2):
            said = r"L1\.attention#\d+ \(worker \d+, step 0\) waits for words of epoch 2, not all of which have come"
            with pytest.raises(WatchdogError, match=said):
                session.prefill(PROMPT)


def test_epochs_begin_anew_before_they_come_round(compiled: Compile) -> None:
    model = compiled(layers=2)
    expected, logits = decoded(model.session, PROMPT, 12)
    with open_host(model) as session:
        backend = session.backend
        assert backend._epochs == 5
        session.prefill(PROMPT, new_tokens=12)
        # The launch to come would reach the last epoch: it goes on from the words that the last one left.
        backend._steps_done = 2**32 // backend._epochs - 11
        made = [session.backend.token(session.position), *session.decode(11)]
        assert backend._steps_done == 11
        assert made == expected
        assert torch.equal(session.logits(), logits)


def test_end_of_text_and_a_dropped_stream_end_a_launch(compiled: Compile) -> None:
    model = compiled(layers=2)
    tokens = model.generate(PROMPT, max_new_tokens=60, eos_token_id=[]).token_ids
    at = next(i for i, token in enumerate(tokens) if i >= 5 and token not in tokens[:i])
    answer = model.generate(PROMPT, max_new_tokens=60, eos_token_id=[tokens[at]])
    assert (answer.token_ids, answer.finish_reason) == (tokens[: at + 1], "eos")
    stream = model.stream(PROMPT, max_new_tokens=200, eos_token_id=[])
    assert [next(stream).id for _ in range(3)] == list(tokens[:3])
    stream.close()
    assert model.generate(PROMPT, max_new_tokens=60, eos_token_id=[]).token_ids == tokens


CRASHES = {
    "a pointer to nothing": (
        "ops/gemv_input.cuh",
        "*reinterpret_cast<uint4*>(staged + place) = pairs;",
        "*reinterpret_cast<volatile u32*>(u64{8}) = pairs_of(x).x;",
        "it said nothing",
    ),
    "a copy that no engine makes": (
        "vm/producer.cuh",
        "copy_async(shared.ring[piece.stage()], from, bytes",
        "copy_async(shared.ring[piece.stage()], from + 4, bytes",
        "not of whole 16-byte words",
    ),
    "a lane that does not come": (
        "ops/gemv.cuh",
        "const float next = Shape::kEpilogue == kEpilogueGatedMul ?",
        "const float next = Shape::kEpilogue == kEpilogueGatedMul && block.lane != 31 ?",
        "its threads wait for each other",
    ),
}


@pytest.mark.parametrize(("path", "old", "new", "says"), CRASHES.values(), ids=CRASHES)
def test_a_crash_of_the_kernel_is_an_error(path: str, old: str, new: str, says: str, compiled: Compile) -> None:
    model = compiled(layers=1)
    broken = edited(emit(model._validated), path, old, new)
    with open_host(model, broken, watchdog_s=2.0) as session, pytest.raises(HostCrashError, match=says):
        session.prefill(PROMPT)


def test_more_memory_than_is_mapped_is_refused(compiled: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amk.runtime.host.ARENA_BYTES", 1 << 16)
    with pytest.raises(HostMemoryError, match="65536"):
        _ = compiled(layers=1).session


def test_an_order_with_other_bits_fails_the_command(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from amk.cli.app import main
    from amk.parity import fuzz as room

    folder = compiled(layers=1).checkpoint.name
    assert main(["fuzz", str(folder), "--seeds", "2", "--tokens", "4"]) == 0
    assert "PASS: 4 tokens, 2 shuffled orders" in capsys.readouterr().out
    real = room._differs
    monkeypatch.setattr(room, "_differs", lambda made, *rest: real([made[0] + 1, *made[1:]], *rest))
    assert main(["fuzz", str(folder), "--seeds", "1", "--tokens", "4"]) == EXIT_FAILED
    assert "FAIL: other bits under seeds 0, 1" in capsys.readouterr().out


def test_no_compiler_is_named_with_its_mend(compiled: Compile, monkeypatch: pytest.MonkeyPatch) -> None:
    from amk.cli.checks.versions import check_compiler

    monkeypatch.setenv("AMK_CXX", "no-such-compiler")
    with pytest.raises(NoHostCompilerError, match="looked for no-such-compiler") as refused:
        compiled(layers=1)
    assert "apt install g++" in refused.value.remedy
    assert check_compiler().status == "warn"
    monkeypatch.delenv("AMK_CXX")
    assert check_compiler().status == "ok"


def test_a_source_that_does_not_compile_is_a_defect_with_the_compilers_words(compiled: Compile) -> None:
    source = edited(emit(compiled(layers=1)._validated), "ops/gemv.cuh", "bool run() {", "bool run() { nonsense;")
    with pytest.raises(CompileFailedError, match="nonsense"):
        host_kernel(source)
