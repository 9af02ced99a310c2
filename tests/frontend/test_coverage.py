from __future__ import annotations

import pytest
import torch

from amk.frontend.checkpoint import resolve
from amk.frontend.coverage import match_tensors
from amk.frontend.errors import (
    TensorDtypeError,
    TensorMissingError,
    TensorShapeError,
    UnreadTensorError,
    UntiedHeadError,
)
from amk.frontend.importer import import_graph, read_graph
from tests.frontend.examples import FAMILIES, llama, random_model, stored, write_checkpoint

GATE = "model.layers.1.mlp.gate_proj.weight"


def matched(folder, config, change=lambda tensors: None, **extra):
    tensors = {**stored(random_model(config)), **extra}
    change(tensors)
    return match_tensors(import_graph(config), resolve(write_checkpoint(folder, config, tensors)))


@pytest.mark.parametrize("tied", [True, False])
def test_a_whole_checkpoint_is_matched(tmp_path, tied):
    config = llama(tie_word_embeddings=tied)
    found = matched(tmp_path, config)
    assert ("lm_head.weight" in found) is not tied
    assert found[GATE].shape == (96, 64)


def test_an_untied_head_that_is_absent_is_named(tmp_path):
    with pytest.raises(TensorMissingError, match=r"lm_head\.weight") as error:
        matched(tmp_path, llama(tie_word_embeddings=False), lambda tensors: tensors.pop("lm_head.weight"))
    assert "tie_word_embeddings" in error.value.remedy


def test_a_missing_tensor_is_named(tmp_path):
    with pytest.raises(TensorMissingError, match=GATE):
        matched(tmp_path, llama(), lambda tensors: tensors.pop(GATE))


def test_a_wrong_shape_is_named(tmp_path):
    with pytest.raises(TensorShapeError, match=rf"{GATE} has shape \[96, 32\]"):
        matched(tmp_path, llama(), **{GATE: torch.zeros(96, 32, dtype=torch.bfloat16)})


@pytest.mark.parametrize("dtype", [torch.int8, torch.float64, torch.float8_e4m3fn])
def test_a_type_that_is_not_read_is_named(tmp_path, dtype):
    with pytest.raises(TensorDtypeError, match=GATE):
        matched(tmp_path, llama(), **{GATE: torch.zeros(96, 64).to(dtype)})


@pytest.mark.parametrize(
    "name", ["model.layers.0.self_attn.q_norm.weight", "model.layers.0.self_attn.q_proj.bias", "model.layers.2.extra"]
)
def test_a_tensor_that_would_not_be_read_is_named(tmp_path, name):
    with pytest.raises(UnreadTensorError, match=name):
        matched(tmp_path, llama(), **{name: torch.ones(16)})


def test_saved_inverse_frequencies_are_harmless(tmp_path):
    assert matched(tmp_path, llama(), **{"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)})


def test_a_stored_copy_of_a_tied_head_is_harmless(tmp_path):
    def store_head(tensors):
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()

    assert "lm_head.weight" not in matched(tmp_path, llama(), store_head)


def test_a_stored_head_that_differs_from_the_embedding_is_refused(tmp_path):
    def store_head(tensors):
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + 1

    with pytest.raises(UntiedHeadError, match=r"lm_head\.weight"):
        matched(tmp_path, llama(), store_head)


@pytest.mark.parametrize("tied", [True, False])
def test_a_model_in_memory_is_matched(tied):
    config = llama(tie_word_embeddings=tied)
    checkpoint = resolve(random_model(config))
    assert match_tensors(import_graph(checkpoint.config), checkpoint)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_of_each_family_is_matched(family):
    checkpoint = resolve(random_model(FAMILIES[family]))
    assert match_tensors(read_graph(checkpoint.config), checkpoint)


def test_a_bias_that_the_config_asks_for_and_the_file_lacks_is_named(tmp_path):
    bias = "model.layers.1.self_attn.k_proj.bias"
    with pytest.raises(TensorMissingError, match=bias):
        matched(tmp_path, llama(attention_bias=True), lambda tensors: tensors.pop(bias))
