"""What each family has beyond the plain Llama, in the graph that is read from its trace."""

from __future__ import annotations

from typing import Any

import pytest

from amk.frontend.importer import import_graph
from amk.frontend.recognise import operands
from amk.ir.graph import (
    Add,
    Attention,
    Embed,
    GatedMul,
    Graph,
    HeadNorm,
    LayerNorm,
    Linear,
    Logits,
    RMSNorm,
    Rope,
)
from tests.frontend.examples import FAMILIES, llama, of_type


def summary(graph: Graph) -> dict[str, Any]:
    """Every field of the ops that a family may set; of tensors, the last name of their module."""
    attention = [op for op in graph.ops if isinstance(op, Attention)]
    by_out = {op.out: op for op in graph.ops}
    turned = [(by_out[op.q], by_out[op.k]) for op in attention]
    (embed,) = (op for op in graph.ops if isinstance(op, Embed))
    logits = graph.ops[-1]
    assert isinstance(logits, Logits)
    return {
        "windows": [op.window for op in attention],
        "softcaps": {op.softcap for op in attention},
        "scales": {op.scale for op in attention},
        "embed": embed.scale,
        "adds": {op.scale for op in graph.ops if isinstance(op, Add)},
        "logits": (logits.scale, logits.softcap, logits.bias),
        "biases": {module(op.bias) for op in graph.ops if isinstance(op, Linear) and op.bias},
        "norms": {module(op.gain): describe(op) for op in graph.ops if isinstance(op, RMSNorm | LayerNorm | HeadNorm)},
        "tables": [
            [(op.rotary_dim, op.table) if isinstance(op, Rope) else None for op in layer][:: 1 if unlike(layer) else 2]
            for layer in turned
        ],
        "gates": {op.activation for op in graph.ops if isinstance(op, GatedMul)},
        "rows": {(module(op.weight), op.rows) for op in graph.ops if isinstance(op, Linear) and op.rows},
        "ropes": [(rope.head_dim, rope.layer_type) for rope in graph.ropes],
    }


def unlike(layer: tuple[Any, Any]) -> bool:
    """Whether queries and keys turn otherwise."""
    q, k = layer
    return isinstance(q, Rope) != isinstance(k, Rope) or (isinstance(q, Rope) and q.table != k.table)


def module(tensor: str) -> str:
    return tensor.split(".")[-2]


def describe(op: RMSNorm | LayerNorm | HeadNorm) -> str:
    match op:
        case LayerNorm():
            return "layer, bias" if op.bias else "layer"
        case HeadNorm():
            return f"{op.over} of {op.heads}" + (", +1" if op.plus_one else "")
    return "rms, +1" if op.plus_one else "rms"


PLAIN = {
    "windows": [None, None],
    "softcaps": {None},
    "scales": {0.25},
    "embed": 1.0,
    "adds": {1.0},
    "logits": (1.0, None, None),
    "biases": set(),
    "norms": {"input_layernorm": "rms", "post_attention_layernorm": "rms", "norm": "rms"},
    "tables": [[(None, 0)], [(None, 0)]],
    "gates": {"silu"},
    "rows": set(),
    "ropes": [(16, "")],
}

QKV = {"q_proj", "k_proj", "v_proj"}
LAYER_NORMS = {"input_layernorm": "layer, bias", "post_attention_layernorm": "layer, bias", "norm": "layer, bias"}
FUSED = {
    ("qkv_proj", (0, 64)),
    ("qkv_proj", (64, 96)),
    ("qkv_proj", (96, 128)),
    ("gate_up_proj", (0, 96)),
    ("gate_up_proj", (96, 192)),
}
POST_NORMS = {"post_attention_layernorm": "rms", "post_feedforward_layernorm": "rms", "norm": "rms"}
GEMMA_NORMS = dict.fromkeys(
    ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm", "norm"),
    "rms, +1",
)

EXPECTED: dict[str, dict[str, Any]] = {
    "llama with biases": {"biases": QKV | {"o_proj", "gate_proj", "up_proj", "down_proj"}},
    "qwen2": {"biases": QKV},
    "qwen2 with windows": {"biases": QKV, "windows": [None, 7]},
    "qwen3": {"norms": {**PLAIN["norms"], "q_norm": "head of 4", "k_norm": "head of 2"}},
    "qwen3 of one kv head": {"norms": {**PLAIN["norms"], "q_norm": "head of 4", "k_norm": "head of 1"}},
    "mistral with a window": {"windows": [7, 7]},
    "granite": {"embed": 12.0, "scales": {0.1}, "adds": {0.22}, "logits": (1 / 6, None, None)},
    "smollm3": {"windows": [None] * 3, "tables": [[(None, 0)], [None], [(None, 0)]]},
    "phi3": {"windows": [7, 7], "rows": FUSED},
    "phi3 of partial rotary": {"rows": FUSED, "tables": [[(12, 0)], [(12, 0)]], "ropes": [(12, "")]},
    "stablelm": {"biases": QKV, "norms": LAYER_NORMS, "tables": [[(4, 0)], [(4, 0)]], "ropes": [(4, "")]},
    "stablelm without biases": {"norms": LAYER_NORMS, "tables": [[(8, 0)], [(8, 0)]], "ropes": [(8, "")]},
    "olmo2": {"norms": {**POST_NORMS, "q_norm": "row of 4", "k_norm": "row of 2"}},
    "olmo2 of one kv head": {"norms": {**POST_NORMS, "q_norm": "row of 4", "k_norm": "row of 1"}},
    "gemma": {
        "embed": 6.928203105926514,  # the square root of 48 in float32
        "scales": {32**-0.5},
        "gates": {"gelu_tanh"},
        "norms": dict.fromkeys(PLAIN["norms"], "rms, +1"),
        "ropes": [(32, "")],
    },
    "gemma2": {
        "embed": 8.94427204132080,
        "scales": {20**-0.5},
        "gates": {"gelu_tanh"},
        "norms": GEMMA_NORMS,
        "windows": [7, None, 7],
        "softcaps": {2.0},
        "logits": (1.0, 3.0, None),
        "tables": [[(None, 0)]] * 3,
    },
    "gemma3": {
        "embed": 8.94427204132080,
        "scales": {20**-0.5},
        "gates": {"gelu_tanh"},
        "norms": {**GEMMA_NORMS, "q_norm": "head of 4, +1", "k_norm": "head of 2, +1"},
        "windows": [7, None, 7],
        "tables": [[(None, 0)], [(None, 1)], [(None, 0)]],
        "ropes": [(16, "sliding_attention"), (16, "full_attention")],
    },
}


def test_the_plain_llama_has_none_of_it():
    assert summary(import_graph(llama())) == PLAIN


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_family_has_is_in_its_graph(family):
    graph = import_graph(FAMILIES[family])
    found, wanted = summary(graph), {**PLAIN, **EXPECTED[family]}
    assert found.pop("embed") == pytest.approx(wanted.pop("embed"), rel=1e-12)
    assert found == wanted
    assert Graph.from_json(graph.to_json()) == graph


@pytest.mark.parametrize("family", FAMILIES)
def test_no_op_is_left_that_nothing_reads(family):
    graph = import_graph(FAMILIES[family])
    read = {value for op in graph.ops for value in operands(op)}
    assert {op.out for op in graph.ops} - read == {"logits"}
    named = [op.weight for op in graph.ops if isinstance(op, Linear) and op.rows is None]
    assert len(named) == len(set(named))


@pytest.mark.parametrize("window", [1, 2, 22, 23, 24, 64, 4096])
def test_a_window_is_read_whatever_its_size(window):
    """As long as the traced cache, longer, and past all positions: it is in the mask all the same."""
    graph = import_graph(of_type("mistral", sliding_window=window))
    assert summary(graph)["windows"] == [window, window]


def test_a_default_window_of_transformers_is_seen():
    config = llama(model_type="mistral", architectures=None)
    assert "sliding_window" not in config
    assert summary(import_graph(config))["windows"] == [4096, 4096]


def test_each_table_has_the_fields_of_its_layers():
    graph = import_graph(FAMILIES["gemma3"])
    local, full = (dict(rope.spec) for rope in graph.ropes)
    assert (local["rope_theta"], local["rope_type"]) == ("100.0", '"default"')
    assert (full["rope_theta"], full["rope_type"], full["factor"]) == ("1000000.0", '"linear"', "8.0")


@pytest.mark.parametrize("activation", ["gelu", "gelu_pytorch_tanh", "silu", "swish"])
def test_the_gate_is_that_of_the_config(activation):
    wanted = {"gelu_pytorch_tanh": "gelu_tanh", "swish": "silu"}.get(activation, activation)
    assert summary(import_graph(llama(hidden_act=activation)))["gates"] == {wanted}
