"""Llama with one thing changed in its code and nothing in its config: the trace must show it."""

from __future__ import annotations

import pytest
import torch
from transformers.models.llama import modeling_llama

from amk.errors import UnsupportedModelError
from amk.frontend.errors import UnrecognisedOpError, UnsupportedStructureError
from amk.frontend.importer import import_graph
from amk.ir.graph import Attention, Rope
from tests.frontend.examples import llama


def interleaved(x):
    x1, x2 = x[..., ::2], x[..., 1::2]
    return torch.stack((-x2, x1), dim=-1).flatten(-2)


def other_sign(x):
    half = x.shape[-1] // 2
    return torch.cat((x[..., half:], -x[..., :half]), dim=-1)


def unequal_halves(x):
    return torch.cat((-x[..., 4:], x[..., :4]), dim=-1)


@pytest.mark.parametrize("rotate", [interleaved, other_sign, unequal_halves])
def test_another_pairing_of_rotary_elements(rotate, monkeypatch):
    monkeypatch.setattr(modeling_llama, "rotate_half", rotate)
    refuse()


def test_rotary_factors_swapped(monkeypatch):
    original = modeling_llama.apply_rotary_pos_emb
    monkeypatch.setattr(
        modeling_llama, "apply_rotary_pos_emb", lambda q, k, cos, sin, **rest: original(q, k, sin, cos, **rest)
    )
    refuse()


def test_rotary_position_off_by_one(monkeypatch):
    original = modeling_llama.LlamaRotaryEmbedding.forward
    monkeypatch.setattr(
        modeling_llama.LlamaRotaryEmbedding,
        "forward",
        lambda self, x, position_ids: original(self, x, position_ids + 1),
    )
    refuse()


def test_keys_not_rotated(monkeypatch):
    original = modeling_llama.apply_rotary_pos_emb
    monkeypatch.setattr(
        modeling_llama, "apply_rotary_pos_emb", lambda q, k, cos, sin, **rest: (original(q, k, cos, sin, **rest)[0], k)
    )
    refuse()


NORMS = {
    "gain plus one": lambda self, x: (
        (1 + self.weight) * x * torch.rsqrt(x.pow(2).mean(-1, True) + self.variance_epsilon)
    ),
    "no gain": lambda self, x: x * torch.rsqrt(x.pow(2).mean(-1, True) + self.variance_epsilon) + 0 * self.weight,
    "mean taken off": lambda self, x: (
        self.weight * (x - x.mean(-1, True)) * torch.rsqrt(x.pow(2).mean(-1, True) + self.variance_epsilon)
    ),
    "sum for mean": lambda self, x: self.weight * (x * torch.rsqrt(x.pow(2).sum(-1, True) + self.variance_epsilon)),
    "eps outside": lambda self, x: self.weight * (x * (torch.rsqrt(x.pow(2).mean(-1, True)) + self.variance_epsilon)),
    "cube": lambda self, x: self.weight * (x * torch.rsqrt(x.pow(3).mean(-1, True) + self.variance_epsilon)),
    "in bf16": lambda self, x: (
        self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, True) + self.variance_epsilon)).bfloat16()
    ),
}


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS.keys())
def test_another_norm(norm, monkeypatch):
    monkeypatch.setattr(modeling_llama.LlamaRMSNorm, "forward", norm)
    refuse()


def test_a_norm_written_otherwise_is_the_same_norm(monkeypatch):
    plain = import_graph(llama())
    monkeypatch.setattr(
        modeling_llama.LlamaRMSNorm,
        "forward",
        lambda self, x: (torch.rsqrt((x * x).mean((-1,), True) + self.variance_epsilon) * x) * self.weight,
    )
    assert import_graph(llama()).digest() == plain.digest()


def attention(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    """Eager attention with the places to change it named in ``change``."""
    change = kwargs.pop("change")
    groups = module.num_key_value_groups
    key, value = (change.get("repeat", modeling_llama.repeat_kv)(x, groups) for x in (key, value))
    weights = query @ key.transpose(2, 3) * change.get("scale", scaling)
    weights = weights + change.get("mask", lambda mask: mask)(attention_mask)
    weights = change.get("softmax", lambda w: torch.softmax(w, dim=-1))(weights)
    return (weights @ value).transpose(1, 2).contiguous(), weights


def tiled(x, groups):
    """Query head h reads KV head h % kv_heads instead of h // groups."""
    batch, heads, length, size = x.shape
    return x[:, None].expand(batch, groups, heads, length, size).reshape(batch, groups * heads, length, size)


ATTENTIONS = {
    "heads tiled": {"repeat": tiled},
    "no mask": {"mask": torch.zeros_like},
    "mask halved": {"mask": lambda mask: mask * 0.5},
    "mask shifted": {"mask": lambda mask: mask.roll(1, -1)},
    "soft cap": {"softmax": lambda w: torch.softmax(50 * torch.tanh(w / 50), dim=-1)},
    "softmax over heads": {"softmax": lambda w: torch.softmax(w, dim=1)},
    "sigmoid": {"softmax": torch.sigmoid},
    "softmax in double": {"softmax": lambda w: torch.softmax(w.double(), dim=-1).float()},
}


@pytest.mark.parametrize("change", ATTENTIONS.values(), ids=ATTENTIONS.keys())
def test_another_attention(change, monkeypatch):
    monkeypatch.setattr(
        modeling_llama, "eager_attention_forward", lambda *args, **rest: attention(*args, **rest, change=change)
    )
    refuse()


def test_attention_written_otherwise_is_the_same_and_its_scale_is_read(monkeypatch):
    plain = import_graph(llama())
    monkeypatch.setattr(
        modeling_llama, "eager_attention_forward", lambda *args, **rest: attention(*args, **rest, change={})
    )
    assert import_graph(llama()).digest() == plain.digest()
    monkeypatch.setattr(
        modeling_llama, "eager_attention_forward", lambda *args, **rest: attention(*args, **rest, change={"scale": 0.3})
    )
    assert {op.scale for op in import_graph(llama()).ops if isinstance(op, Attention)} == {0.3}


MLPS = {
    "gate and up swapped": lambda self, x: self.down_proj(self.act_fn(self.up_proj(x)) * self.gate_proj(x)),
    "no up": lambda self, x: self.down_proj(self.act_fn(self.gate_proj(x)) + 0 * self.up_proj(x)),
    "square of the gate": lambda self, x: self.down_proj(self.act_fn(self.gate_proj(x)).square() * self.up_proj(x)),
    "relu": lambda self, x: self.down_proj(torch.relu(self.gate_proj(x)) * self.up_proj(x)),
}


@pytest.mark.parametrize("name", MLPS)
def test_another_mlp(name, monkeypatch):
    monkeypatch.setattr(modeling_llama.LlamaMLP, "forward", MLPS[name])
    if name == "gate and up swapped":  # expressible: the graph must say what is computed
        gates = [op.gate for op in import_graph(llama()).ops if type(op).__name__ == "GatedMul"]
        assert all(gate.endswith("up_proj") for gate in gates)
    else:
        refuse()


def test_another_wiring(monkeypatch):
    def parallel(self, hidden_states, **rest):
        normed = self.input_layernorm(hidden_states)
        attended, _ = self.self_attn(hidden_states=normed, **rest)
        return hidden_states + attended + self.mlp(self.post_attention_layernorm(hidden_states))

    monkeypatch.setattr(modeling_llama.LlamaDecoderLayer, "forward", parallel)
    refuse()


def test_a_cache_row_written_elsewhere(monkeypatch):
    from transformers.cache_utils import StaticLayer

    original = StaticLayer.update

    def shifted(self, key_states, value_states, *args, **rest):
        self.cumulative_length = self.cumulative_length + 1
        return original(self, key_states, value_states, *args, **rest)

    monkeypatch.setattr(StaticLayer, "update", shifted)
    refuse()


def test_a_cache_of_another_layer_read(monkeypatch):
    from transformers.cache_utils import StaticCache

    original = StaticCache.update
    monkeypatch.setattr(
        StaticCache,
        "update",
        lambda self, k, v, layer_idx, *args, **rest: original(self, k, v, 1 - layer_idx, *args, **rest),
    )
    refuse()


def test_scaled_rotary_factors_are_recognised(monkeypatch):
    config = llama(rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16})
    assert sum(isinstance(op, Rope) for op in import_graph(config).ops) == 4


def refuse(named: str = "supported structure") -> None:
    """The model was traced, and then refused for what the trace shows."""
    with pytest.raises(UnsupportedModelError, match=named) as refusal:
        import_graph(llama())
    assert isinstance(refusal.value, UnrecognisedOpError | UnsupportedStructureError), refusal.value
