"""The twin of a model has every kind of layer and every option of the model, at a size at which they matter."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from amk.frontend.aliases import ALIASES, shipped_config
from amk.frontend.importer import read_graph
from amk.frontend.oracle import float32_model
from amk.frontend.twin import CAPS, LAYERS, VOCAB, WINDOW, random_tensors, shrink
from amk.ir.graph import Attention, Graph, HeadNorm, RMSNorm, Rope
from tests.frontend.examples import FAMILIES, Interpreter, llama, of_type, relative_difference, tables

TOKENS = 42

NEUTRAL: dict[str, Any] = {
    "activation": "silu",
    "bias": None,
    "plus_one": False,
    "scale": 1.0,
    "softcap": None,
    "table": 0,
    "window": None,
}
"""Options of ops, and the value of each that leaves it out."""


def large(model_type: str, **changes: Any) -> dict[str, Any]:
    """The fields that published configs of a family have; sizes of a model that no test could run."""
    sizes = {
        "model_type": model_type,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 7,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 250000,
        "max_position_embeddings": 8192,
    }
    return {**sizes, **changes}


LARGE = {
    "qwen2": large("qwen2", rope_theta=1e6, rms_norm_eps=1e-6, use_sliding_window=False, sliding_window=32768),
    "qwen2 with windows": large("qwen2", use_sliding_window=True, sliding_window=4096, max_window_layers=5),
    "qwen3": large("qwen3", head_dim=128, tie_word_embeddings=True),
    "mistral": large("mistral", sliding_window=4096),
    "granite": large(
        "granite",
        attention_multiplier=0.0078125,
        embedding_multiplier=12.0,
        residual_multiplier=0.22,
        logits_scaling=16.0,
    ),
    "smollm3": large("smollm3", no_rope_layer_interval=4),
    "phi3": large("phi3", sliding_window=2047, pad_token_id=32000),
    "phi3 of partial rotary": large("phi3", sliding_window=262144, partial_rotary_factor=0.75),
    "stablelm": large("stablelm", partial_rotary_factor=0.25, use_qkv_bias=True),
    "stablelm of odd heads": large("stablelm", partial_rotary_factor=0.33),
    "olmo2": large("olmo2"),
    "gemma": large("gemma", head_dim=256, num_key_value_heads=1),
    "gemma2": large("gemma2", head_dim=256, hidden_size=2304, sliding_window=4096, query_pre_attn_scalar=144),
    "gemma3": large("gemma3_text", head_dim=256, hidden_size=1152, sliding_window_pattern=6, rope_theta=1e6),
    "llama with biases": large("llama", attention_bias=True, mlp_bias=True),
}


def kinds(graph: Graph) -> set[Any]:
    """What tells the layers of a graph apart."""
    made = {op.out: op for op in graph.ops}
    return {
        (op.window is None, made[op.q].table if isinstance(made[op.q], Rope) else None)
        for op in graph.ops
        if isinstance(op, Attention)
    }


@pytest.mark.parametrize("config", LARGE.values(), ids=LARGE.keys())
def test_a_twin_has_the_ops_of_its_model(config):
    small = shrink(config)
    twin, model = read_graph(small), read_graph(config)
    assert kinds(twin) == kinds(model)
    assert LAYERS <= twin.layers <= 4
    assert {type(op) for op in twin.ops} == {type(op) for op in model.ops}
    assert {tensor.name.split(".", 3)[-1] for tensor in twin.tensors} == {
        tensor.name.split(".", 3)[-1] for tensor in model.tensors
    }
    assert {op.window for op in twin.ops if isinstance(op, Attention)} <= {None, WINDOW}
    assert twin.vocab == VOCAB
    assert twin.hidden < 512


@pytest.mark.parametrize(
    "config", [*LARGE.values(), *FAMILIES.values()], ids=[*LARGE, *(f"tiny {f}" for f in FAMILIES)]
)
def test_a_twin_decodes_as_huggingface_and_each_part_of_it_matters(config):
    small = shrink(config)
    graph = read_graph(small)
    tensors = random_tensors(graph, seed=0)
    tokens = [(7 * i * i + 5) % VOCAB for i in range(TOKENS)]
    with torch.no_grad():
        wanted = float32_model(small, tensors.__getitem__)(torch.tensor([tokens])).logits[0]
    assert relative_difference(run(graph, tensors, small, tokens), wanted) < 1e-4
    for name, changed in weakened(graph).items():
        moved = relative_difference(run(changed, tensors, small, tokens), wanted)
        assert moved > 3e-3, f"{name} could be left out unseen: {moved}"


def run(graph: Graph, tensors: dict[str, torch.Tensor], config: dict[str, Any], tokens: list[int]) -> torch.Tensor:
    interpreter = Interpreter(graph, tensors.__getitem__, tables(graph, config, len(tokens)))
    return torch.stack([interpreter.step(token) for token in tokens])


def weakened(graph: Graph) -> dict[str, Graph]:
    """``graph`` once for each option that ops of some kind have, without it."""
    found = {}
    for field, neutral in NEUTRAL.items():
        for kind in {type(op) for op in graph.ops if getattr(op, field, neutral) not in (neutral, "")}:
            if field == "table" and kind is not Rope:
                continue
            ops = tuple(replace(op, **{field: neutral}) if type(op) is kind else op for op in graph.ops)
            found[f"{kind.__name__}.{field}"] = replace(graph, ops=ops)
    return found


@pytest.mark.parametrize("alias", ALIASES)
def test_each_alias_has_a_twin(alias):
    graph = read_graph(shrink(json.loads(shipped_config(alias).read_text())))
    assert graph.vocab == VOCAB


def test_caps_and_windows_shrink_but_do_not_grow():
    small = shrink(of_type("gemma2", sliding_window=4096, attn_logit_softcapping=50.0, final_logit_softcapping=1.0))
    assert (small["sliding_window"], small["attn_logit_softcapping"], small["final_logit_softcapping"]) == (
        WINDOW,
        CAPS["attn_logit_softcapping"],
        1.0,
    )


def test_weights_are_drawn_by_what_they_are():
    graph = read_graph(shrink({**FAMILIES["gemma3"], "attention_bias": True}))
    tensors = random_tensors(graph, seed=1)
    gains = torch.cat([tensors[op.gain] for op in graph.ops if isinstance(op, RMSNorm | HeadNorm)]).float()
    biases = torch.cat([tensor for name, tensor in tensors.items() if name.endswith(".bias")]).float()
    assert abs(gains.mean()) < 0.1
    assert 0.25 < gains.std() < 0.35
    assert abs(biases.mean()) < 0.1
    assert 0.4 < biases.std() < 0.6
    plain = random_tensors(read_graph(llama()), seed=1)
    assert 0.9 < plain["model.norm.weight"].float().mean() < 1.1
