"""compile, generate, save, load on tiny checkpoints; the real one is in test_real.py."""

from __future__ import annotations

import json
import threading
import zipfile
from pathlib import Path

import pytest
import torch

import amk
from amk.contracts.decode import contract_for, decode_parity
from amk.errors import (
    ArtefactError,
    BadOptionError,
    CertificateMismatchError,
    ContextOverflowError,
    NoDeviceError,
    ScheduleRefutedError,
    TargetArchMismatchError,
    UnknownArchError,
    UnknownTargetError,
    UnreadableInputError,
    UnwritablePathError,
)
from amk.ir.buffers import Quantization
from amk.pipeline import CompiledModel
from amk.runtime.errors import SupersededError
from tests.checkpoints import random_llama, save_llama

PROMPT = [7, 3, 99, 11, 4, 87, 20, 51, 33, 2, 64]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def _home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMK_HOME", str(home))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def model(folder: Path) -> CompiledModel:
    return amk.compile(folder, arch="cpu", progress=False)


def huggingface_greedy(folder: Path, prompt: list[int], tokens: int) -> list[int]:
    from transformers import AutoModelForCausalLM

    oracle = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    out = oracle.generate(torch.tensor([prompt]), max_new_tokens=tokens, do_sample=False, eos_token_id=None)
    return out[0, len(prompt) :].tolist()


def test_generate_is_huggingface_greedy(model: CompiledModel, folder: Path) -> None:
    answer = model.generate(PROMPT, max_new_tokens=40, eos_token_id=[])
    assert list(answer.token_ids) == huggingface_greedy(folder, PROMPT, 40)
    assert answer.finish_reason == "length"


def test_prompts_one_after_another_do_not_disturb_each_other(model: CompiledModel) -> None:
    first = model.generate(PROMPT, max_new_tokens=12, eos_token_id=[])
    model.generate([1, 2, 3], max_new_tokens=30, eos_token_id=[])
    assert model.generate(PROMPT, max_new_tokens=12, eos_token_id=[]).token_ids == first.token_ids


def test_end_of_text_comes_from_both_configs(model: CompiledModel, folder: Path, tmp_path: Path) -> None:
    tokens = model.generate(PROMPT, max_new_tokens=12, eos_token_id=[]).token_ids
    at = next(i for i, token in enumerate(tokens) if i >= 3 and token not in tokens[:i])
    for name, value in (("config.json", tokens[at]), ("generation_config.json", [130, tokens[at]])):
        copy = tmp_path / name.removesuffix(".json")
        copy.mkdir()
        for file in folder.iterdir():
            (copy / file.name).write_bytes(file.read_bytes())
        fields = json.loads((copy / name).read_text())
        (copy / name).write_text(json.dumps({**fields, "eos_token_id": value}))
        answer = amk.compile(copy, arch="cpu", progress=False).generate(PROMPT, max_new_tokens=12)
        assert (answer.token_ids, answer.finish_reason) == (tokens[: at + 1], "eos")


def test_a_stream_is_the_generation(model: CompiledModel) -> None:
    answer = model.generate(PROMPT, max_new_tokens=9, eos_token_id=[])
    stream = model.stream(PROMPT, max_new_tokens=9, eos_token_id=[])
    assert tuple(token.id for token in stream) == answer.token_ids


def test_threads_take_turns(model: CompiledModel) -> None:
    alone = model.generate(PROMPT, max_new_tokens=8, eos_token_id=[]).token_ids
    found: list[tuple[int, ...]] = []
    threads = [
        threading.Thread(
            target=lambda: found.append(model.generate(PROMPT, max_new_tokens=8, eos_token_id=[]).token_ids)
        )
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [alone] * 3


def test_an_overtaken_stream_ends_in_an_error(model: CompiledModel) -> None:
    stream = model.stream(PROMPT, max_new_tokens=9, eos_token_id=[])
    next(stream)
    model.generate([1], max_new_tokens=1)
    with pytest.raises(SupersededError):
        list(stream)


def test_a_model_in_memory_compiles_and_decodes(folder: Path) -> None:
    model = amk.compile(random_llama(), arch="cpu", progress=False)
    assert list(model.generate(PROMPT, max_new_tokens=10, eos_token_id=[]).token_ids) == huggingface_greedy(
        folder, PROMPT, 10
    )


TWINS = {
    "gqa 9/3, hidden 576": {"hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3},
    "gqa 7/1": {"hidden_size": 56, "num_attention_heads": 7, "num_key_value_heads": 1},
    "mha 5/5": {"hidden_size": 80, "num_attention_heads": 5, "num_key_value_heads": 5},
    "hidden 64, 5 layers": {"num_hidden_layers": 5},
    "vocab 32001": {"vocab_size": 32001},
    "untied": {"tie_word_embeddings": False},
    "head_dim is not hidden/heads": {"head_dim": 32},
    "odd sizes": {"hidden_size": 76, "intermediate_size": 101, "num_key_value_heads": 1, "head_dim": 10},
}


@pytest.mark.parametrize("fields", TWINS.values(), ids=TWINS.keys())
def test_tiny_twins_equal_huggingface(fields: dict[str, object], tmp_path: Path) -> None:
    folder = save_llama(tmp_path, seed=3, **fields)
    model = amk.compile(folder, arch="cpu", progress=False)
    prompts = [(f"{n} ids", [(5 * i * i + n) % 131 for i in range(n)]) for n in (1, 7, 8, 9, 17)]
    report = decode_parity(model, contract_for("tiny"), prompts, tokens=24)
    assert report.failure == ""
    assert report.tokens == 120
    assert all(prompt.first_divergence is None for prompt in report.prompts)
    assert report.logit_range_max < 2e-3


def test_a_wrong_weight_fails_parity(model: CompiledModel) -> None:
    session = model.session
    session.backend.memory["L1.qkv.weight"][0] *= 1.5
    report = decode_parity(model, contract_for("tiny"), [("p", PROMPT)], tokens=8)
    assert report.verdict == "fail"


def test_save_and_load_prove_the_schedule_again(model: CompiledModel, tmp_path: Path) -> None:
    path = model.save(tmp_path / "deep" / "model.amk")
    loaded = amk.load(path, progress=False)
    assert loaded.certificate == model.certificate
    assert loaded.schedule.digest() == model.schedule.digest()
    answer = model.generate(PROMPT, max_new_tokens=6, eos_token_id=[])
    assert loaded.generate(PROMPT, max_new_tokens=6, eos_token_id=[]).token_ids == answer.token_ids
    again = model.save(tmp_path / "again.amk")
    assert again.read_bytes() == path.read_bytes()


def tampered(path: Path, out: Path, **changes: bytes | None) -> Path:
    """A copy of an artefact with members replaced, added or (None) left out; dots are written as underscores."""
    members = {name.replace("_json", ".json"): data for name, data in changes.items()}
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for name in {*old.namelist(), *members}:
            data = members.get(name, old.read(name) if name in old.namelist() else None)
            if data is not None:
                new.writestr(name, data)
    return out


def test_a_tampered_artefact_is_refused(model: CompiledModel, tmp_path: Path) -> None:
    path, out = model.save(tmp_path / "model.amk"), tmp_path / "bad.amk"
    task = next(task for task in model.schedule.tasks if task.waits and task.id.startswith("L1.o"))
    schedule = model.schedule.to_json()
    old = b'{"counter":"%s","threshold":%d}' % (task.waits[0].counter.encode(), task.waits[0].threshold)
    weakened = schedule.replace(old, old.replace(b"}", b"0}")).replace(b"0}", b"}", 0)
    assert weakened != schedule
    with pytest.raises(ScheduleRefutedError):
        amk.load(tampered(path, out, schedule_json=weakened), progress=False)
    other = amk.compile(model.checkpoint.name, arch="cpu", max_context=17, progress=False)
    with pytest.raises(CertificateMismatchError):
        amk.load(tampered(path, out, schedule_json=other.schedule.to_json()), progress=False)
    for changes, why in (
        ({"graph_json": None}, "members"),
        ({"evil_json": b"{}"}, "members"),
        ({"graph_json": b"{}"}, "graph.json"),
        ({"manifest_json": b"[" * 100_000}, "manifest.json"),
    ):
        with pytest.raises(ArtefactError, match=why):
            amk.load(tampered(path, out, **changes), progress=False)
    (tmp_path / "text.amk").write_text("hello")
    with pytest.raises(ArtefactError, match="not a zip"):
        amk.load(tmp_path / "text.amk")
    with pytest.raises(UnreadableInputError):
        amk.load(tmp_path / "none.amk")


def test_changed_weights_are_another_checkpoint(tmp_path: Path) -> None:
    folder = save_llama(tmp_path / "model")
    path = amk.compile(folder, arch="cpu", progress=False).save(tmp_path / "model.amk")
    random_llama(seed=9).save_pretrained(folder)
    loaded = amk.load(path, progress=False)
    with pytest.raises(CertificateMismatchError, match="weights"):
        loaded.generate([1], max_new_tokens=1)


def test_a_gpu_target_compiles_anywhere_and_runs_nowhere_else(folder: Path) -> None:
    model = amk.compile(folder, arch="sm_90", progress=False)
    assert model.schedule.target.name == "h200"
    assert "PROVED" in str(model.report())
    with pytest.raises(NoDeviceError, match="sm_90"):
        model.generate([1], max_new_tokens=1)


def test_every_chip_compiles(folder: Path) -> None:
    for name, workers in (("a100", 108), ("h100-pcie", 114), ("rtx5090", 170)):
        model = amk.compile(folder, target=name, progress=False)
        assert len(model.schedule.queues) == workers


def test_context_and_options_are_checked(folder: Path) -> None:
    model = amk.compile(folder, arch="cpu", max_context=16, progress=False)
    with pytest.raises(ContextOverflowError, match="compiled for 16"):
        model.generate(PROMPT, max_new_tokens=7)
    assert len(model.generate(PROMPT, max_new_tokens=6, eos_token_id=[]).token_ids) == 6
    for options, kind in (
        ({"max_context": 257}, BadOptionError),
        ({"max_context": 0}, BadOptionError),
        ({"tokens_per_pass": 9}, BadOptionError),
        ({"dtype": "w8a16", "group_size": 32}, BadOptionError),
        ({"group_size": 64}, BadOptionError),
        ({"dtype": "fp4"}, BadOptionError),
        ({"kv_dtype": "int8"}, BadOptionError),
        ({"arch": "sm_70"}, UnknownArchError),
        ({"target": "h300"}, UnknownTargetError),
        ({"arch": "sm_80", "target": "h200"}, TargetArchMismatchError),
        ({"arch": "sm_90", "device": 0}, BadOptionError),
    ):
        with pytest.raises(kind):
            amk.compile(folder, progress=False, **options)


@pytest.mark.parametrize("group_size", [0, 128])
def test_eight_bit_weights_survive_a_file(group_size: int, folder: Path, tmp_path: Path) -> None:
    model = amk.compile(folder, arch="cpu", dtype="w8a16", group_size=group_size, progress=False)
    assert model.quantization == Quantization(group=group_size)
    assert {b.dtype for b in model.schedule.buffers if b.kind == "weight"} == {"i8"}
    again = amk.load(model.save(tmp_path / "model.amk"), progress=False)
    assert again.manifest == model.manifest
    for each in (model, again):
        each.session.prefill(PROMPT)
    assert torch.equal(again.session.logits(), model.session.logits())
    plain = amk.compile(folder, arch="cpu", progress=False)
    assert plain.quantization is None
    plain.session.prefill(PROMPT)
    assert 1e-3 < float((plain.session.logits() - model.session.logits()).abs().max()) < 1.0
    said = str(model.report())
    assert f"weights w8a16{' in groups of 128' if group_size else ''}, KV cache" in said


def test_bf16_cache_decodes_close_to_the_oracle(folder: Path) -> None:
    model = amk.compile(folder, arch="cpu", kv_dtype="bfloat16", progress=False)
    full = amk.compile(folder, arch="cpu", progress=False)
    for each in (model, full):
        each.session.prefill(PROMPT)
    distance = model.session.logits() - full.session.logits()
    assert 0 < float(distance.abs().max()) < 0.3


def test_an_output_that_cannot_be_written(model: CompiledModel, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnwritablePathError, match="choose another output path"):
        model.save(tmp_path / "file" / "model.amk")
