"""The kernel on a real device: exact, deterministic, unhangable. Run with `pytest -m gpu` on a machine that has one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

import amk
from amk.codegen.cache import cubin_for
from amk.codegen.emit import emit
from amk.contracts.decode import contract_for, decode_parity
from amk.pipeline import CompiledModel
from amk.runtime.cuda import CudaChip
from amk.runtime.device import probe
from amk.runtime.errors import StreamCaptureError, WatchdogError
from amk.runtime.launch import KernelBackend
from amk.runtime.session import Session
from tests.checkpoints import save_llama, save_uneven_llama
from tests.pipeline.test_compile import PROMPT, TWINS

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module", autouse=True)
def _home(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AMK_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("tiny"), max_position_embeddings=1024)


@pytest.fixture(scope="module")
def model(folder: Path) -> CompiledModel:
    return amk.compile(folder, progress=False)


def prompt_of(length: int) -> list[int]:
    return [(5 * i * i + length) % 131 for i in range(length)]


def assert_exact(model: CompiledModel) -> None:
    prompts = [(f"{length} ids", prompt_of(length)) for length in (1, 7, 8, 9, 40, 129)]
    report = decode_parity(model, contract_for("tiny"), prompts, tokens=8)
    assert report.failure == ""
    assert (report.tokens, report.ties) == (48, 0)
    assert report.logit_range_max < 2e-3


@pytest.mark.parametrize("fields", TWINS.values(), ids=TWINS.keys())
def test_twins_equal_huggingface_at_every_prompt_length(fields: dict[str, object], tmp_path: Path) -> None:
    model = amk.compile(save_llama(tmp_path, seed=3, **fields), progress=False)
    assert model.arch == probe().devices[0].arch
    prompts = [(f"{length} ids", prompt_of(length)) for length in range(1, 41)]
    report = decode_parity(model, contract_for("tiny"), prompts, tokens=8)
    assert report.failure == ""
    assert report.tokens == 320
    assert report.ties == 0
    assert report.logit_range_max < 2e-3


def test_the_kernel_follows_the_reference_machine(model: CompiledModel) -> None:
    """Contexts in which one, two and all splits of the past have rows, around each boundary."""
    machine = model.machine_session()
    for length in (1, 8, 63, 64, 65, 127, 128, 129, 257, 513, 769, 1000):
        for session in (model.session, machine):
            session.prefill(prompt_of(length))
        ours, theirs = model.session.logits(), machine.logits()
        assert float((ours - theirs).abs().max()) < 2e-4 * float(theirs.abs().max()), length


def test_a_bf16_cache(folder: Path) -> None:
    model = amk.compile(folder, kv_dtype="bfloat16", progress=False)
    machine = model.machine_session()
    for length in (9, 300):
        for session in (model.session, machine):
            session.prefill(prompt_of(length))
        ours, theirs = model.session.logits(), machine.logits()
        assert float((ours - theirs).abs().max()) < 2e-2 * float(theirs.abs().max()), length


@pytest.mark.parametrize("group_size", [0, 64])
@pytest.mark.parametrize("fields", TWINS.values(), ids=TWINS.keys())
def test_eight_bit_weights_equal_the_dequantized(fields: dict[str, object], group_size: int, tmp_path: Path) -> None:
    folder = save_llama(tmp_path, seed=3, **fields)
    assert_exact(amk.compile(folder, dtype="w8a16", group_size=group_size, progress=False))


@pytest.mark.parametrize("group_size", [0, 64, 128])
def test_eight_bit_rows_of_zeros_and_of_one_huge_weight(group_size: int, tmp_path: Path) -> None:
    assert_exact(amk.compile(save_uneven_llama(tmp_path), dtype="w8a16", group_size=group_size, progress=False))


def test_eight_bit_weights_of_wide_rows_in_groups(tmp_path: Path) -> None:
    """16,384 columns: a step of several rows reads them in chunks."""
    folder = save_llama(tmp_path, seed=3, intermediate_size=16_384, num_hidden_layers=1)
    assert_exact(amk.compile(folder, dtype="w8a16", group_size=64, progress=False))


def test_many_tokens_are_one_launch_and_the_same_bits(model: CompiledModel) -> None:
    session = model.session
    runs = []
    for _ in range(3):
        session.prefill(PROMPT, new_tokens=129)
        before = session.backend.launches
        tokens = list(session.decode(128))
        assert session.backend.launches == before + 1
        runs.append((tokens, session.logits()))
    session.prefill(PROMPT, new_tokens=129)
    singles = [token for _ in range(128) for token in session.decode(1)]
    runs.append((singles, session.logits()))
    for tokens, logits in runs[1:]:
        assert tokens == runs[0][0]
        assert torch.equal(logits, runs[0][1])


def test_the_same_bits_under_load(model: CompiledModel) -> None:
    session = model.session
    session.prefill(PROMPT, new_tokens=65)
    alone = (list(session.decode(64)), session.logits())
    # The grid holds every SM, so the load is the copy engines', on streams of their own, while tokens are made.
    here = torch.empty(1 << 28, dtype=torch.uint8, pin_memory=True)
    there = [torch.empty_like(here, device="cuda") for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in there]
    for _ in range(3):
        for _ in range(20):
            for stream, copy in zip(streams, there, strict=True):
                with torch.cuda.stream(stream):
                    copy.copy_(here, non_blocking=True)
        session.prefill(PROMPT, new_tokens=65)
        tokens = list(session.decode(64))
        still_loaded = not all(stream.query() for stream in streams)
        assert still_loaded, "the load was over before the tokens were made"
        assert tokens == alone[0]
        assert torch.equal(session.logits(), alone[1])
        torch.cuda.synchronize()


def test_end_of_text_stops_every_worker(model: CompiledModel) -> None:
    tokens = model.generate(PROMPT, max_new_tokens=100, eos_token_id=[]).token_ids
    at = next(i for i, token in enumerate(tokens) if i >= 5 and token not in tokens[:i])
    for _ in range(20):
        answer = model.generate(PROMPT, max_new_tokens=100, eos_token_id=[tokens[at]])
        assert (answer.token_ids, answer.finish_reason) == (tokens[: at + 1], "eos")


def test_a_dropped_stream_leaves_the_model_usable(model: CompiledModel) -> None:
    alone = model.generate(PROMPT, max_new_tokens=50, eos_token_id=[]).token_ids
    for taken in (1, 2, 7):
        stream = model.stream(PROMPT, max_new_tokens=900, eos_token_id=[])
        assert [next(stream).id for _ in range(taken)] == list(alone[:taken])
        stream.close()
        assert model.generate(PROMPT, max_new_tokens=50, eos_token_id=[]).token_ids == alone


def test_a_lost_signal_ends_in_an_error_that_names_it(model: CompiledModel, folder: Path) -> None:
    """Past the validator, by a test's own hand: the launch must end, say what it waited for, and leave no trace."""
    schedule = model.schedule
    hop = [task.id for task in schedule.tasks if task.id.startswith("L1.attention")]
    victim = hop[0]
    tasks = tuple(replace(task, signals=()) if task.id == victim else task for task in schedule.tasks)

    class Forced:
        pass

    forced = Forced()
    forced.schedule = replace(schedule, tasks=tasks)
    source = emit(forced)
    load, rope = model._weights()
    chip = CudaChip(cubin_for(source), source.config, device=probe().devices[0], workers=len(forced.schedule.queues))
    backend = KernelBackend(forced, source.config, chip, load=load, rope=rope, watchdog_s=1.0)
    session = Session(backend, vocab=131, context_limit=1024)
    said = rf"worker \d+, step 0\) waits for L1\.attention to reach {len(hop)}; it is at {len(hop) - 1}"
    for _ in range(2):
        with pytest.raises(WatchdogError, match=said):
            session.prefill(PROMPT)
    backend.close()
    expected = amk.compile(folder, progress=False).generate(PROMPT, max_new_tokens=8, eos_token_id=[])
    assert model.generate(PROMPT, max_new_tokens=8, eos_token_id=[]).token_ids == expected.token_ids


def test_a_thousand_launches_leak_nothing(model: CompiledModel) -> None:
    session = model.session
    session.prefill([5], new_tokens=2)
    torch.cuda.synchronize()
    free = torch.cuda.mem_get_info()[0]
    for _ in range(500):
        session.prefill([5], new_tokens=2)
        list(session.decode(1))
    assert torch.cuda.mem_get_info()[0] == free


def test_a_graph_capture_refuses_the_model_and_survives(model: CompiledModel) -> None:
    session = model.session
    expected = model.generate(PROMPT, max_new_tokens=20, eos_token_id=[]).token_ids
    x = torch.arange(4.0, device="cuda")
    _ = (x + 1) * 2  # both kernels are loaded before the capture
    graph = torch.cuda.CUDAGraph()
    session.prefill(PROMPT, new_tokens=21)
    with torch.cuda.graph(graph):
        y = x + 1
        for attempt in (
            lambda: model.generate(PROMPT, max_new_tokens=20),
            lambda: session.force(5),
            session.logits,
            model.open_session,
        ):
            with pytest.raises(StreamCaptureError, match="AMK-R612"):
                attempt()
        y = y * 2
    x += 1
    graph.replay()
    assert y.tolist() == [4.0, 6.0, 8.0, 10.0]
    assert model.generate(PROMPT, max_new_tokens=20, eos_token_id=[]).token_ids == expected
