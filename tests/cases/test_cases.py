"""Inputs that broke other systems, by kind: each decodes as HuggingFace float32 does, or is refused by name.

Kinds that have a room of their own are tested there:

- shards, pickles, remote code, missing and unread tensors: ``tests/frontend``, ``tests/cli/test_wrong_inputs.py``
- end of text in lists and in two configs: ``tests/pipeline/test_compile.py``, ``tests/frontend/test_checkpoint.py``
- rope scaling, windows, multipliers, head norms, layers without rope, partial rotary: ``tests/families``
- shared memory, workers, ring: ``tests/validator/test_refusals.py``; another chip, an older driver, a launch
  that fails, stream capture: ``tests/runtime/test_cuda.py``, ``tests/gpu``
- lost signals, guard bands, overhang: ``tests/host``; one differing token of twenty: ``tests/parity``
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import amk
from amk.codegen.cache import program_for
from amk.codegen.emit import emit
from amk.codegen.nvrtc import build
from amk.frontend.errors import UnreadTensorError
from tests.checkpoints import save_llama
from tests.families.configs import Config
from tests.families.judge import judge
from tests.host.running import decoded

SIZES: Config = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 131,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "pad_token_id": None,
}

DECODES: dict[str, Config] = {
    "theta at top level": {"rope_theta": 1e6},
    "theta in rope_parameters": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    "a scaling in the old dialect": {
        "rope_theta": 5e5,
        "rope_scaling": {
            "type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    },
    "head_dim that is not hidden / heads": {"head_dim": 32},
    "head_dim null": {"head_dim": None},
    "7 heads, 1 KV head": {"hidden_size": 56, "num_attention_heads": 7, "num_key_value_heads": 1},
    "5 heads, 5 KV heads": {"hidden_size": 80, "num_attention_heads": 5, "num_key_value_heads": 5},
    "an odd vocabulary": {"vocab_size": 32_001},
    "a vocabulary one above a power": {"vocab_size": 49_153, "tie_word_embeddings": False},
    "a prime vocabulary": {"vocab_size": 1_009},
    "sizes that are multiples of nothing": {"hidden_size": 76, "intermediate_size": 101, "head_dim": 10},
}


@pytest.mark.parametrize("fields", DECODES.values(), ids=DECODES)
def test_decodes(fields: Config) -> None:
    outcome = judge(SIZES | fields, tokens=12, lengths=(11, 20))
    assert (outcome.refused, outcome.wrong, outcome.tokens) == ("", "", 24)


def test_two_dialects_of_one_theta_are_one_model() -> None:
    from amk.frontend.importer import import_graph

    old, new = (import_graph(SIZES | DECODES[name]) for name in ("theta at top level", "theta in rope_parameters"))
    assert old.digest() == new.digest()
    assert old.digest() != import_graph(SIZES | {"rope_theta": 1e4}).digest()


@pytest.mark.parametrize("length", [1, 7, 8, 9, 15, 16, 17, 255, 256, 257])
def test_prompts_around_every_edge(length: int) -> None:
    outcome = judge(SIZES, tokens=3, lengths=(length,))
    assert (outcome.wrong, outcome.tokens) == ("", 3)


def test_three_hundred_tokens() -> None:
    outcome = judge(SIZES, tokens=320, lengths=(9,))
    assert (outcome.wrong, outcome.tokens) == ("", 320)


WIDE: dict[str, Config] = {
    "hidden 5120, intermediate 17408": {
        "hidden_size": 5120,
        "intermediate_size": 17_408,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
    },
    "a layer of Llama-3.2-1B": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
    },
}


@pytest.mark.parametrize("fields", WIDE.values(), ids=WIDE)
def test_a_full_size_layer(fields: Config) -> None:
    outcome = judge(SIZES | {"num_hidden_layers": 1} | fields, tokens=2, lengths=(3,))
    assert (outcome.refused, outcome.wrong, outcome.tokens) == ("", "", 2)


def test_a_full_size_layer_of_the_kernel(tmp_path: Path, amk_home: Path) -> None:
    """As an H200 runs it: its warps, its ring, its chunks of columns; on this processor, of fewer workers."""
    fields = {key: value for key, value in WIDE["a layer of Llama-3.2-1B"].items() if key != "model_type"}
    folder = save_llama(tmp_path, num_hidden_layers=1, vocab_size=131, **fields)
    model = amk.compile(folder, arch="host", max_context=64, tokens_per_pass=2, progress=False)
    made, ours = decoded(model.session, [5, 9], 2)
    expected, theirs = decoded(model.machine_session(), [5, 9], 2)
    assert made == expected
    assert float((ours - theirs).abs().max()) < 2e-4 * float(theirs.abs().max())


def test_a_bias_that_only_the_file_has_is_refused(tmp_path: Path, amk_home: Path) -> None:
    folder = save_llama(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.self_attn.q_proj.bias"] = torch.zeros(64, dtype=torch.bfloat16)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UnreadTensorError, match=r"self_attn\.q_proj\.bias"):
        amk.compile(folder, arch="cpu", progress=False)


PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@pytest.mark.parametrize("dtype", PRECISIONS.values(), ids=PRECISIONS)
def test_the_precision_of_the_file(dtype: torch.dtype, tmp_path: Path, amk_home: Path) -> None:
    """bf16 is exact; wider ones are rounded to it, which is said; matrices and gains of several types may mix."""
    folder = save_llama(tmp_path)
    tensors: dict[str, Any] = load_file(folder / "model.safetensors")
    wide = {name: t.to(dtype) if t.dim() > 1 else t for name, t in tensors.items()}
    wide["model.layers.0.mlp.up_proj.weight"] = tensors["model.layers.0.mlp.up_proj.weight"]
    save_file(wide, folder / "model.safetensors", metadata={"format": "pt"})
    model = amk.compile(folder, arch="cpu", progress=False)
    assert ("round" in str(model.report())) == (dtype != torch.bfloat16)
    exact = amk.compile(save_llama(tmp_path / "exact"), arch="cpu", progress=False)
    prompt = [7, 3, 99]
    expected = exact.generate(prompt, max_new_tokens=8, eos_token_id=[]).token_ids
    assert model.generate(prompt, max_new_tokens=8, eos_token_id=[]).token_ids == expected


def test_no_toolkit_and_foreign_headers_first(tmp_path: Path, amk_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = tmp_path / "include"
    for name in ("vm/kernel.cuh", "prim/thread.cuh", "abi.cuh", "copy.cuh", "host/runtime.h"):
        (foreign / name).parent.mkdir(parents=True, exist_ok=True)
        (foreign / name).write_text("#error foreign\n")
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    for variable in ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"):
        monkeypatch.setenv(variable, str(foreign))
    folder = save_llama(tmp_path / "model")
    assert build(emit(amk.compile(folder, arch="sm_90", progress=False)._validated)).code
    assert program_for(emit(amk.compile(folder, arch="host", progress=False)._validated)).code
