"""Each family with one thing changed in its code and nothing in its config: refused, or said as it is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers.models as models
from transformers import masking_utils

from amk.errors import UnsupportedModelError
from amk.frontend.errors import UnrecognisedOpError, UnsupportedStructureError
from amk.frontend.importer import read_graph
from amk.ir.graph import Add, Attention, Embed, GatedMul, Graph, Linear, RMSNorm
from tests.frontend.examples import FAMILIES


def refuse(family: str, named: str = "supported structure") -> None:
    """The model was traced, and then refused for what the trace shows."""
    with pytest.raises(UnsupportedModelError, match=named) as refusal:
        read_graph(FAMILIES[family])
    assert isinstance(refusal.value, UnrecognisedOpError | UnsupportedStructureError), refusal.value


def ops(graph: Graph, kind: type) -> list[Any]:
    return [op for op in graph.ops if isinstance(op, kind)]


# --- windows ---------------------------------------------------------------------------------------------------------

OVERLAYS = {
    "one row more": lambda size: lambda b, h, q, kv: kv >= q - size,
    "from the other side": lambda size: lambda b, h, q, kv: q - kv < size,
    "chunks": lambda size: lambda b, h, q, kv: kv // size == q // size,
    "rows behind the window": lambda size: lambda b, h, q, kv: kv < q - size,
    "of the row, not of the position": lambda size: lambda b, h, q, kv: kv > kv - size,
    "first rows kept": lambda size: lambda b, h, q, kv: (kv > q - size) | (kv < 2),
}


@pytest.mark.parametrize("overlay", OVERLAYS.values(), ids=OVERLAYS.keys())
@pytest.mark.parametrize("family", ["mistral with a window", "gemma2"])
def test_another_window_is_not_taken_for_one_or_for_none(family, overlay, monkeypatch):
    monkeypatch.setattr(masking_utils, "sliding_window_overlay", overlay)
    refuse(family, "self_attn")


def test_a_window_that_is_another_than_the_config_says_is_read_from_the_mask(monkeypatch):
    original = masking_utils.sliding_window_overlay
    monkeypatch.setattr(masking_utils, "sliding_window_overlay", lambda size: original(size - 2))
    graph = read_graph(FAMILIES["mistral with a window"])
    assert {op.window for op in ops(graph, Attention)} == {5}


def test_a_window_is_never_lost():
    """Whatever the family, a layer has a window in its graph just if its config gives it one."""
    for family, config in FAMILIES.items():
        types = config.get("layer_types") or ["sliding_attention"] * config["num_hidden_layers"]
        size = config.get("sliding_window")
        wanted = [size if kind == "sliding_attention" else None for kind in types]
        assert [op.window for op in ops(read_graph(config), Attention)] == wanted, family


# --- caps ------------------------------------------------------------------------------------------------------------


def attention(module, query, key, value, attention_mask, scaling, dropout=0.0, softcap=None, **kwargs):
    """Eager attention with the cap as ``change`` has it."""
    change = kwargs.pop("change")
    repeat = models.gemma2.modeling_gemma2.repeat_kv
    key, value = (repeat(x, module.num_key_value_groups) for x in (key, value))
    scores = query @ key.transpose(2, 3) * scaling
    return (torch.softmax(change(scores, attention_mask, softcap), dim=-1) @ value).transpose(1, 2).contiguous(), None


CAPPED = {
    "another cap within than without": lambda x, mask, cap: torch.tanh(x / cap) * (cap + 1) + mask,
    "after the mask": lambda x, mask, cap: torch.tanh((x + mask) / cap) * cap,
    "not multiplied again": lambda x, mask, cap: torch.tanh(x / cap) + mask,
    "not divided": lambda x, mask, cap: torch.tanh(x) * cap + mask,
    "arctangent": lambda x, mask, cap: torch.atan(x / cap) * cap + mask,
    "hard": lambda x, mask, cap: torch.clamp(x, -cap, cap) + mask,
    "multiplied instead of divided": lambda x, mask, cap: torch.tanh(x * cap) * cap + mask,
}


@pytest.mark.parametrize("change", CAPPED.values(), ids=CAPPED.keys())
def test_another_cap_of_scores(change, monkeypatch):
    monkeypatch.setattr(
        models.gemma2.modeling_gemma2,
        "eager_attention_forward",
        lambda *args, **rest: attention(*args, **rest, change=change),
    )
    refuse("gemma2", "self_attn")


def test_a_cap_left_out_of_the_code_is_none_in_the_graph(monkeypatch):
    monkeypatch.setattr(
        models.gemma2.modeling_gemma2,
        "eager_attention_forward",
        lambda *args, **rest: attention(*args, **rest, change=lambda x, mask, cap: x + mask),
    )
    assert {op.softcap for op in ops(read_graph(FAMILIES["gemma2"]), Attention)} == {None}


HEADS = {
    "another cap within than without": lambda x: torch.tanh(x / 3) * 4,
    "not multiplied again": lambda x: torch.tanh(x / 3),
    "scaled after the cap": lambda x: torch.tanh(x / 3) * 3 * 2,
    "moved": lambda x: torch.tanh(x / 3) * 3 + 1,
    "normalised": lambda x: torch.log_softmax(x, dim=-1),
}


@pytest.mark.parametrize("change", HEADS.values(), ids=HEADS.keys())
def test_another_head(change, monkeypatch):
    original = torch.nn.Linear.forward
    monkeypatch.setattr(
        torch.nn.Linear,
        "forward",
        lambda self, x: change(original(self, x)) if self.out_features == 131 else original(self, x),
    )
    refuse("qwen3", "lm_head|embed_tokens|logits")


# --- norms -----------------------------------------------------------------------------------------------------------


def normed(x, eps, dim=-1):
    return x * torch.rsqrt(x.pow(2).mean(dim, keepdim=True) + eps)


NORMS = {
    "two added to the gain": lambda self, x: normed(x, self.eps) * (2.0 + self.weight),
    "one taken from the gain": lambda self, x: normed(x, self.eps) * (self.weight - 1.0),
    "one added to the product": lambda self, x: normed(x, self.eps) * self.weight + 1.0,
    "the gain squared": lambda self, x: normed(x, self.eps) * self.weight * self.weight,
}


@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS.keys())
def test_another_gain(norm, monkeypatch):
    monkeypatch.setattr(models.gemma2.modeling_gemma2.Gemma2RMSNorm, "forward", norm)
    refuse("gemma2", "layernorm")


def test_a_gain_is_plus_one_just_if_the_code_adds_it(monkeypatch):
    monkeypatch.setattr(
        models.gemma2.modeling_gemma2.Gemma2RMSNorm, "forward", lambda self, x: normed(x, self.eps) * self.weight
    )
    assert {op.plus_one for op in ops(read_graph(FAMILIES["gemma2"]), RMSNorm)} == {False}


HEAD_NORMS = {
    "over the heads": lambda self, x: self.weight * normed(x, self.variance_epsilon, -2),
    "over all heads at once": lambda self, x: self.weight * normed(x, self.variance_epsilon, (-2, -1)),
    "of the absolute": lambda self, x: self.weight * (x * torch.rsqrt(x.abs().mean(-1, keepdim=True) + 1e-6)),
}


@pytest.mark.parametrize("norm", HEAD_NORMS.values(), ids=HEAD_NORMS.keys())
def test_another_norm_of_heads(norm, monkeypatch):
    original = models.qwen3.modeling_qwen3.Qwen3RMSNorm.forward
    monkeypatch.setattr(
        models.qwen3.modeling_qwen3.Qwen3RMSNorm,
        "forward",
        lambda self, x: norm(self, x) if x.dim() == 4 else original(self, x),
    )
    refuse("qwen3", "q_norm|q_proj")


@pytest.mark.parametrize("sizes", [(64,), (1, 64)])
def test_a_layer_norm_without_gain_is_refused(sizes, monkeypatch):
    monkeypatch.setattr(torch.nn.LayerNorm, "forward", lambda self, x: torch.nn.functional.layer_norm(x, sizes))
    refuse("stablelm", "layer_norm")


# --- matrices --------------------------------------------------------------------------------------------------------

FUSED = {
    "every second row": lambda up: (up[..., ::2], up[..., 1::2]),
    "rows counted from the end": lambda up: (up.flip(-1)[..., :96], up[..., 96:]),
}


@pytest.mark.parametrize("cut", FUSED.values(), ids=FUSED.keys())
def test_another_cut_of_a_fused_matrix(cut, monkeypatch):
    def forward(self, x):
        gate, up = cut(self.gate_up_proj(x))
        return self.down_proj(up * self.activation_fn(gate))

    monkeypatch.setattr(models.phi3.modeling_phi3.Phi3MLP, "forward", forward)
    refuse("phi3", "gate_up_proj")


def test_the_rows_of_a_fused_matrix_are_those_of_the_code(monkeypatch):
    def forward(self, x):
        up, gate = self.gate_up_proj(x).split([96, 96], dim=-1)
        return self.down_proj(up * self.activation_fn(gate))

    monkeypatch.setattr(models.phi3.modeling_phi3.Phi3MLP, "forward", forward)
    graph = read_graph(FAMILIES["phi3"])
    gates = {op.gate for op in ops(graph, GatedMul)}
    assert {op.rows for op in ops(graph, Linear) if op.out in gates} == {(96, 192)}


def test_a_bias_that_is_added_twice_is_refused(monkeypatch):
    original = torch.nn.Linear.forward
    monkeypatch.setattr(
        torch.nn.Linear,
        "forward",
        lambda self, x: original(self, x) + self.bias if self.bias is not None else original(self, x),
    )
    refuse("qwen2", "bias")


# --- multipliers -----------------------------------------------------------------------------------------------------


def test_multipliers_are_read_from_the_code(monkeypatch):
    original = models.gemma2.modeling_gemma2.Gemma2TextScaledWordEmbedding.forward
    monkeypatch.setattr(
        models.gemma2.modeling_gemma2.Gemma2TextScaledWordEmbedding,
        "forward",
        lambda self, ids: torch.nn.functional.embedding(ids, self.weight) * 5.5,
    )
    assert [op.scale for op in ops(read_graph(FAMILIES["gemma2"]), Embed)] == [5.5]
    monkeypatch.setattr(
        models.gemma2.modeling_gemma2.Gemma2TextScaledWordEmbedding,
        "forward",
        lambda self, ids: original(self, ids) + 1.0,
    )
    refuse("gemma2", "embed_tokens")


def granite_layer(mix):
    """A layer of Granite whose residual connections are made by ``mix``."""

    def forward(self, hidden_states, *args, **rest):
        attended, _ = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **rest)
        middle = mix(hidden_states, attended, self.residual_multiplier)
        return mix(middle, self.mlp(self.post_attention_layernorm(middle)), self.residual_multiplier)

    return forward


def test_what_a_multiplier_multiplies_is_read_from_the_code(monkeypatch):
    layer = models.granite.modeling_granite.GraniteDecoderLayer
    monkeypatch.setattr(layer, "forward", granite_layer(lambda x, y, scale: x * scale + y))
    first = ops(read_graph(FAMILIES["granite"]), Add)[0]
    assert (first.a.split(".")[-1], first.b, first.scale) == ("o_proj", "embedding.scaled", 0.22)
    monkeypatch.setattr(layer, "forward", granite_layer(lambda x, y, scale: (x + y) * scale))
    refuse("granite")
    monkeypatch.setattr(layer, "forward", granite_layer(lambda x, y, scale: x * scale + y * scale))
    refuse("granite")


# --- rotary positions ------------------------------------------------------------------------------------------------


def partly(turn):
    """Partial rotary positions where ``turn`` gives cos * q + sin * rotated of the pieces."""

    def apply(q, k, cos, sin, unsqueeze_dim=1):
        cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
        return turn(q, cos, sin), turn(k, cos, sin)

    return apply


def turned(x, cos, sin):
    return x * cos + models.phi3.modeling_phi3.rotate_half(x) * sin


PARTLY = {
    "the last elements": lambda x, cos, sin: torch.cat([x[..., :4], turned(x[..., 4:], cos, sin)], dim=-1),
    "the rest doubled": lambda x, cos, sin: torch.cat([turned(x[..., :12], cos, sin), 2 * x[..., 12:]], dim=-1),
    "the rest first": lambda x, cos, sin: torch.cat([x[..., 12:], turned(x[..., :12], cos, sin)], dim=-1),
    "other elements beside": lambda x, cos, sin: torch.cat([turned(x[..., :12], cos, sin), x[..., :4]], dim=-1),
    "elements moved by one": lambda x, cos, sin: torch.cat([turned(x[..., 1:13], cos, sin), x[..., 12:]], dim=-1),
}


@pytest.mark.parametrize("turn", PARTLY.values(), ids=PARTLY.keys())
def test_other_elements_turn(turn, monkeypatch):
    monkeypatch.setattr(models.phi3.modeling_phi3, "apply_rotary_pos_emb", partly(turn))
    refuse("phi3 of partial rotary", "qkv_proj|self_attn")


def test_the_table_of_the_other_layers_is_another_table(monkeypatch):
    rotary = models.gemma3.modeling_gemma3.Gemma3RotaryEmbedding
    original = rotary.forward
    plain = read_graph(FAMILIES["gemma3"])
    monkeypatch.setattr(
        rotary,
        "forward",
        lambda self, x, position_ids, layer_type: original(
            self, x, position_ids, {"full_attention": "sliding_attention"}.get(layer_type, "full_attention")
        ),
    )
    swapped = read_graph(FAMILIES["gemma3"])
    assert [rope.layer_type for rope in swapped.ropes] == [rope.layer_type for rope in reversed(plain.ropes)]


def test_one_table_with_two_scales_is_refused(monkeypatch):
    original = models.smollm3.modeling_smollm3.apply_rotary_pos_emb

    def uneven(q, k, cos, sin, **rest):
        turned_q, _ = original(q, k, cos, sin, **rest)
        _, turned_k = original(q, k, cos * 2.0, sin * 2.0, **rest)
        return turned_q, turned_k

    monkeypatch.setattr(models.smollm3.modeling_smollm3, "apply_rotary_pos_emb", uneven)
    refuse("smollm3", "self_attn")


# --- gates -----------------------------------------------------------------------------------------------------------

GATES = {
    "quick gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "without the cube": lambda x: 0.5 * x * (1 + torch.tanh(0.7978845608 * x)),
    "bounded": lambda x: torch.nn.functional.gelu(x, approximate="tanh").clamp(max=7.0),
}


@pytest.mark.parametrize("gate", GATES.values(), ids=GATES.keys())
def test_another_gate(gate, monkeypatch):
    monkeypatch.setattr(
        models.gemma2.modeling_gemma2.Gemma2MLP,
        "forward",
        lambda self, x: self.down_proj(gate(self.gate_proj(x)) * self.up_proj(x)),
    )
    refuse("gemma2", "gate_proj|mlp")
