from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from amk.frontend.errors import RopeTableError
from amk.frontend.rope import rope_table
from tests.frontend.examples import FAMILIES, LLAMA3, llama, of_type

DIALECTS = {
    "theta at top level": llama(rope_theta=1e6),
    "theta inside rope_parameters": llama(rope_theta=None, rope_parameters={"rope_theta": 1e6, "rope_type": "default"}),
    "rope_scaling null": llama(rope_theta=1e6, rope_scaling=None),
    "type by its old name": llama(rope_theta=1e6, rope_scaling={"type": "default"}),
}
SCALED = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": LLAMA3,
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
}


@pytest.mark.parametrize("config", DIALECTS.values(), ids=DIALECTS.keys())
def test_a_dialect_gives_the_table_of_its_theta(config):
    half = 8
    angles = np.arange(40)[:, None] / 1e6 ** (np.arange(half) / half)
    table = rope_table(config, 40)
    assert table.shape == (40, 2, half)
    assert table.dtype == np.float32
    np.testing.assert_allclose(table[:, 0], np.cos(angles), atol=1e-5)
    np.testing.assert_allclose(table[:, 1], np.sin(angles), atol=1e-5)


@pytest.mark.parametrize("scaling", SCALED.values(), ids=SCALED.keys())
def test_a_scaled_table_is_that_of_huggingface_bit_for_bit(scaling):
    fields = {key: value for key, value in llama().items() if key not in ("model_type", "architectures", "rope_theta")}
    module = LlamaRotaryEmbedding(LlamaConfig(**fields, rope_parameters={**scaling, "rope_theta": 10000.0}))
    cos, sin = module(torch.zeros(1), torch.arange(64)[None])
    table = rope_table(llama(rope_scaling=scaling), 64)
    assert np.array_equal(table[:, 0], cos[0, :, :8].numpy())
    assert np.array_equal(table[:, 1], sin[0, :, :8].numpy())


def test_scalings_differ():
    tables = [rope_table(llama(rope_scaling=scaling), 64) for scaling in (None, *SCALED.values())]
    assert all(not np.allclose(a, b) for i, a in enumerate(tables) for b in tables[:i])


def test_making_a_table_leaves_the_config_alone():
    config = llama(rope_scaling=dict(SCALED["linear"]))
    rope_table(config, 4)
    assert config == llama(rope_scaling=SCALED["linear"])


def test_unequal_halves_are_refused(monkeypatch):
    original = LlamaRotaryEmbedding.forward

    def unequal(self, x, position_ids):
        cos, sin = original(self, x, position_ids)
        return cos.cumsum(-1), sin

    monkeypatch.setattr(LlamaRotaryEmbedding, "forward", unequal)
    with pytest.raises(RopeTableError, match="two halves"):
        rope_table(llama(), 4)


@pytest.mark.parametrize(("model_type", "factor", "turning"), [("phi3", 0.75, 12), ("stablelm", 0.25, 4)])
def test_a_partial_table_has_as_many_factors_as_elements_turn(model_type, factor, turning):
    angles = np.arange(40)[:, None] / 1e4 ** (np.arange(0, turning, 2) / turning)
    table = rope_table(of_type(model_type, partial_rotary_factor=factor), 40)
    assert table.shape == (40, 2, turning // 2)
    np.testing.assert_allclose(table[:, 0], np.cos(angles), atol=1e-5)


def test_each_layer_type_has_its_table():
    config = FAMILIES["gemma3"]
    local = rope_table(config, 40, layer_type="sliding_attention")
    full = rope_table(config, 40, layer_type="full_attention")
    exponents = np.arange(8) / 8
    np.testing.assert_allclose(local[:, 0], np.cos(np.arange(40)[:, None] / 100**exponents), atol=1e-5)
    np.testing.assert_allclose(full[:, 1], np.sin(np.arange(40)[:, None] / 8 / 1e6**exponents), atol=1e-5)


@pytest.mark.parametrize(
    ("config", "layer_type", "known"),
    [(llama(), "full_attention", "only of ''"), (FAMILIES["gemma3"], "", "'full_attention', 'sliding_attention'")],
    ids=["one table", "two tables"],
)
def test_a_table_that_the_model_has_not_is_named(config, layer_type, known):
    with pytest.raises(RopeTableError, match=known):
        rope_table(config, 4, layer_type=layer_type)
