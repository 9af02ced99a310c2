"""A compiled model under the gates."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

import amk
from amk.contracts.megakernel import DECODED, TIMEOUT_S, judge_model, oracle, pair_of
from amk.contracts.verdicts import Judgement
from amk.contracts.verify import Options, judge_kernel
from tests.checkpoints import save_llama

FLOATING = {"G01", "G02", "G06", "G12"}
"""Gates that need floating inputs, or gradients: token ids are neither."""

HUGE = 1 << 40


def test_the_reference_is_huggingface_behind_each_of_the_last_tokens(tmp_path: Path) -> None:
    folder = save_llama(tmp_path / "llama")
    reference = oracle(str(folder), "bf16", 0)
    ids = torch.arange(3, 12)
    exact = reference.double()(ids)
    assert exact.shape == (1 + DECODED, 131)
    assert exact.dtype == torch.float64
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    with torch.no_grad():
        assert torch.allclose(theirs(ids[None]).logits[0, -1 - DECODED :], exact, atol=1e-5)
    rounded = oracle(str(folder), "bf16", 0)(ids)
    assert 1e-4 < float((rounded - exact).norm() / exact.norm()) < 5e-2
    assert rounded.dtype == torch.float32


@pytest.mark.parametrize("dtype", ["bf16", "w8a16"])
def test_a_small_model_passes_every_gate_that_applies(tmp_path: Path, dtype: str) -> None:
    folder = save_llama(tmp_path / "llama", max_position_embeddings=512)
    model = amk.compile(str(folder), arch="host", max_context=300, dtype=dtype, progress=False)
    found = judge_model(model)
    assert found.status == "conforms", str(found)
    assert {finding.gate for finding in found.findings if finding.verdict == "not applicable"} == FLOATING, str(found)
    assert all(finding.verdict == "pass" for finding in judged(found)), str(found)


def test_another_models_kernel_is_found_out(tmp_path: Path) -> None:
    mine = amk.compile(str(save_llama(tmp_path / "one")), arch="cpu", max_context=64, progress=False)
    other = amk.compile(str(save_llama(tmp_path / "other", seed=1)), arch="cpu", max_context=64, progress=False)
    pair = replace(pair_of(mine), candidate=pair_of(other).candidate)
    limits = {"timeout_s": TIMEOUT_S, "first_timeout_s": TIMEOUT_S, "memory_bytes": HUGE}
    found = judge_kernel(pair, Options(gates=("G07",), **limits))
    assert found.status == "violation", str(found)


@pytest.mark.parametrize("dtype", ["bf16", "w8a16"])
def test_the_real_checkpoint_passes_the_quick_gates(dtype: str) -> None:
    """The others ask for many runs of its thirty layers, which take minutes: ``amk gates`` runs them all."""
    model = amk.compile("SmolLM2-135M-Instruct", arch="host", max_context=64, dtype=dtype, progress=False)
    found = judge_model(model, gates=("G07", "G08"))
    assert [finding.verdict for finding in found.findings] == ["pass", "pass"], str(found)


def judged(found: Judgement) -> list[object]:
    """Findings of the gates that decide, and apply."""
    return [finding for finding in found.findings if finding.gate not in {"G00", *FLOATING}]
