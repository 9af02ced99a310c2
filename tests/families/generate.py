"""Random configs inside the families, and some of what stands just outside of them."""

from __future__ import annotations

from random import Random
from typing import Any, Final

from tests.families.configs import Config

LAYERS_MAX: Final = 3
OUTSIDE: Final = 8
"""One config in so many has something that is not supported."""


def random_config(rng: Random, family: str) -> Config:
    """A config of ``family``: sizes, head counts and options at random, and now and then something unsupported."""
    model_type, options = _FAMILIES[family]
    head_dim = rng.choice((4, 8, 10, 16, 32))
    kv_heads = rng.choice((1, 2, 3))
    heads = kv_heads * rng.choice((1, 2, 3, 5))
    layers = rng.randint(1, LAYERS_MAX)
    config: Config = {
        "model_type": model_type,
        "hidden_size": heads * (head_dim if family in _TIED_HEADS else rng.choice((6, 16, 20, 33))),
        "intermediate_size": rng.choice((24, 61, 96)),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "vocab_size": rng.choice((97, 128, 131)),
        "max_position_embeddings": 128,
        "tie_word_embeddings": rng.random() < 0.5,
        "pad_token_id": None,
        "bos_token_id": 1,
        "eos_token_id": 2,
        ("layer_norm_eps" if family == "StableLM" else "rms_norm_eps"): rng.choice((1e-6, 1e-5, 1e-3)),
        "rope_parameters": _rope(rng),
    }
    if family in _TIED_HEADS:
        del config["head_dim"]
    config |= options(rng, layers)
    if rng.randrange(OUTSIDE) == OUTSIDE - 1:
        config |= rng.choice(_UNSUPPORTED)
    return config


def _rope(rng: Random) -> Config:
    theta = rng.choice((10_000.0, 500_000.0, 1e6))
    kind = rng.choice(("default", "default", "linear", "llama3"))
    rope: Config = {"rope_type": kind, "rope_theta": theta}
    if kind != "default":
        rope["factor"] = rng.choice((2.0, 8.0))
    if kind == "llama3":
        rope |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
    return rope


def _layer_types(rng: Random, layers: int) -> Config:
    kinds = ["sliding_attention", "full_attention"]
    return {"layer_types": [rng.choice(kinds) for _ in range(layers)], "sliding_window": rng.choice((1, 5, 9, 64))}


def _llama(rng: Random, layers: int) -> Config:
    return {"attention_bias": rng.random() < 0.3, "mlp_bias": rng.random() < 0.3}


def _mistral(rng: Random, layers: int) -> Config:
    return {"sliding_window": rng.choice((None, 1, 5, 9, 64))}


def _qwen2(rng: Random, layers: int) -> Config:
    if rng.random() < 0.5:
        return {}
    return {
        "use_sliding_window": True,
        "sliding_window": rng.choice((5, 9)),
        "max_window_layers": rng.randint(0, layers),
    }


def _qwen3(rng: Random, layers: int) -> Config:
    return _qwen2(rng, layers) | {"attention_bias": rng.random() < 0.3}


def _smollm3(rng: Random, layers: int) -> Config:
    return {"no_rope_layers": [rng.randint(0, 1) for _ in range(layers)]}


def _granite(rng: Random, layers: int) -> Config:
    multiplier = (0.22, 0.7, 1.0, 2.0, 6.0)
    return {
        "embedding_multiplier": rng.choice(multiplier),
        "attention_multiplier": rng.choice(multiplier[:3]),
        "residual_multiplier": rng.choice(multiplier[:3]),
        "logits_scaling": rng.choice((1.0, 3.0, 8.0)),
        "attention_bias": rng.random() < 0.3,
        "mlp_bias": rng.random() < 0.3,
    }


def _plain(rng: Random, layers: int) -> Config:
    return {}


def _gemma2(rng: Random, layers: int) -> Config:
    return _layer_types(rng, layers) | {
        "query_pre_attn_scalar": rng.choice((8, 24, 144)),
        "attn_logit_softcapping": rng.choice((None, 2.0, 50.0)),
        "final_logit_softcapping": rng.choice((None, 3.0, 30.0)),
    }


def _gemma3(rng: Random, layers: int) -> Config:
    tables = {kind: _rope(rng) for kind in ("sliding_attention", "full_attention")}
    return _layer_types(rng, layers) | {
        "query_pre_attn_scalar": rng.choice((8, 24, 144)),
        "rope_parameters": tables,
    }


def _phi3(rng: Random, layers: int) -> Config:
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": rng.choice((0.5, 1.0))}
    return {"sliding_window": rng.choice((None, 5, 9)), "rope_parameters": rope}


def _stablelm(rng: Random, layers: int) -> Config:
    rope = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": rng.choice((0.5, 1.0))}
    return {"use_qkv_bias": rng.random() < 0.5, "rope_parameters": rope}


_TIED_HEADS: Final = ("Phi-3", "StableLM")
"""Families whose head_dim is hidden / heads."""

_FAMILIES: Final[dict[str, tuple[str, Any]]] = {
    "Llama": ("llama", _llama),
    "Mistral": ("mistral", _mistral),
    "Qwen2": ("qwen2", _qwen2),
    "Qwen3": ("qwen3", _qwen3),
    "SmolLM3": ("smollm3", _smollm3),
    "Granite": ("granite", _granite),
    "OLMo2": ("olmo2", _plain),
    "Gemma": ("gemma", _plain),
    "Gemma2": ("gemma2", _gemma2),
    "Gemma3 text": ("gemma3_text", _gemma3),
    "Phi-3": ("phi3", _phi3),
    "StableLM": ("stablelm", _stablelm),
}

FAMILY_NAMES: Final = tuple(_FAMILIES)

_UNSUPPORTED: Final[tuple[Config, ...]] = (
    {"hidden_act": "relu", "hidden_activation": "relu"},
    {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}},
    {"num_local_experts": 4},
    {"quantization_config": {"quant_method": "awq"}},
)
