"""Eight-bit weights in the kernel's own source: HuggingFace's tokens with the weights that the integers stand for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import amk
from amk.contracts.decode import contract_for, decode_parity
from amk.ir.errors import NonFiniteWeightError
from amk.pipeline import CompiledModel
from tests.checkpoints import save_llama, save_uneven_llama
from tests.gpu.diff import differences
from tests.host.conftest import PROMPT, TWINS, Compile
from tests.host.running import decoded

GROUPS = pytest.mark.parametrize("group_size", [0, 64, 128])
PROMPTS = [(f"{length} ids", [(5 * i * i + length) % 131 for i in range(length)]) for length in (1, 8, 19, 37)]


def assert_exact(model: CompiledModel) -> None:
    report = decode_parity(model, contract_for("tiny"), PROMPTS, tokens=8)
    assert report.failure == ""
    assert (report.tokens, report.ties) == (32, 0)
    assert report.logit_range_max < 2e-3


@GROUPS
@pytest.mark.parametrize("twin", TWINS)
def test_tokens_are_those_of_the_dequantized_weights(twin: str, group_size: int, compiled: Compile) -> None:
    model = compiled(twin, dtype="w8a16", group_size=group_size)
    assert_exact(model)
    assert [str(found) for found in differences(model, PROMPT, tokens=3)] == []


@pytest.mark.parametrize("arch", ["cpu", "host"])
def test_a_table_that_only_embeds_stays_bf16(arch: str, tmp_path: Path) -> None:
    model = amk.compile(
        save_llama(tmp_path, seed=3, tie_word_embeddings=False), arch=arch, dtype="w8a16", progress=False
    )
    dtypes = {name: model.schedule.buffer[name].dtype for name in ("model.embed_tokens.weight", "lm_head.weight")}
    assert dtypes == {"model.embed_tokens.weight": "bf16", "lm_head.weight": "i8"}
    assert_exact(model)


@GROUPS
def test_rows_of_zeros_and_of_one_huge_weight(group_size: int, tmp_path: Path) -> None:
    folder = save_uneven_llama(tmp_path)
    for arch in ("cpu", "host"):
        assert_exact(amk.compile(folder, arch=arch, dtype="w8a16", group_size=group_size, progress=False))


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name(wrong: float, tmp_path: Path) -> None:
    folder = save_llama(tmp_path, seed=3)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors["model.layers.1.self_attn.o_proj.weight"][9, 2] = wrong
    save_file(tensors, file, metadata={"format": "pt"})
    model = amk.compile(folder, arch="host", dtype="w8a16", progress=False)
    with pytest.raises(NonFiniteWeightError, match=r"row 9 of model\.layers\.1\.self_attn\.o_proj\.weight"):
        model.session.prefill(PROMPT)


def test_wide_rows_in_groups(tmp_path: Path) -> None:
    """16,384 columns: a step of several rows reads them in chunks."""
    folder = save_llama(tmp_path, seed=3, intermediate_size=16_384, num_hidden_layers=1)
    model = amk.compile(folder, arch="host", dtype="w8a16", group_size=64, progress=False)
    assert_exact(model)


def test_what_is_not_finite_stays_so(compiled: Compile) -> None:
    """No digits stand for it: it must not come out as a number."""
    model = compiled(dtype="w8a16", layers=2)
    backend = model.session.backend
    gain = backend.schedule.task["L1.qkv#0"].op.prologue.gain
    backend.chip.upload(backend.placed.address[gain], torch.full((64,), float("nan")).numpy())
    model.session.prefill(PROMPT)
    assert bool(model.session.logits().isnan().all())


def test_two_runs_are_the_same_bits(compiled: Compile) -> None:
    model = compiled("gqa 9/3, hidden 576", dtype="w8a16")
    runs = [decoded(model.session, PROMPT, 12) for _ in range(2)]
    assert runs[0][0] == runs[1][0]
    assert torch.equal(runs[0][1], runs[1][1])
