"""A tiny config of each family, in every variant that its models use; sizes that no tile divides where they may."""

from __future__ import annotations

from typing import Any, Final

Config = dict[str, Any]

_SIZES: Final[Config] = {
    "hidden_size": 48,
    "intermediate_size": 76,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 131,
    "max_position_embeddings": 128,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
}

_WINDOW: Final = 9
"""Narrower than the prompts, and neither a power of two nor a multiple of a pass."""


def _config(model_type: str, **fields: Any) -> Config:
    config = {"model_type": model_type} | _SIZES | fields
    return {key: value for key, value in config.items() if key != "head_dim" or value is not None}


def _rope(theta: float = 10_000.0, **fields: Any) -> Config:
    return {"rope_type": "default", "rope_theta": theta, **fields}


_LLAMA3: Final = _rope(
    500_000.0,
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=16,
)
_GEMMA2: Final[Config] = {
    "query_pre_attn_scalar": 24,
    "sliding_window": _WINDOW,
    "layer_types": ["sliding_attention", "full_attention"],
    "tie_word_embeddings": True,
}
_GEMMA3: Final[Config] = {
    **_GEMMA2,
    "num_hidden_layers": 3,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
}
_GEMMA3_ROPE: Final[Config] = {"sliding_attention": _rope(), "full_attention": _rope(1e6)}

FAMILIES: Final[dict[str, dict[str, Config]]] = {
    "Llama": {
        "2, untied": _config("llama", num_key_value_heads=4, tie_word_embeddings=False),
        "3.2, tied": _config("llama", rope_parameters=_LLAMA3, tie_word_embeddings=True),
        "biases": _config("llama", attention_bias=True, mlp_bias=True),
        "9/3": _config("llama", num_attention_heads=9, num_key_value_heads=3, hidden_size=144),
    },
    "Mistral": {
        "no window": _config("mistral", sliding_window=None),
        "window": _config("mistral", sliding_window=_WINDOW),
        "window of one": _config("mistral", sliding_window=1),
    },
    "Qwen2": {
        "biases": _config("qwen2", tie_word_embeddings=True),
        "windows above the first layer": _config(
            "qwen2", use_sliding_window=True, sliding_window=_WINDOW, max_window_layers=1
        ),
    },
    "Qwen3": {"q/k norms": _config("qwen3", tie_word_embeddings=True), "untied": _config("qwen3")},
    "SmolLM3": {
        "a layer without rope": _config("smollm3", no_rope_layers=[1, 0], tie_word_embeddings=True),
    },
    "Granite": {
        "multipliers": _config(
            "granite",
            embedding_multiplier=6.0,
            attention_multiplier=0.3,
            residual_multiplier=0.22,
            logits_scaling=4.0,
        ),
        "odd multipliers": _config(
            "granite",
            embedding_multiplier=0.7,
            attention_multiplier=0.11,
            residual_multiplier=1.3,
            logits_scaling=3.0,
            tie_word_embeddings=True,
        ),
    },
    "OLMo2": {"post-norms": _config("olmo2")},
    "Gemma": {"gain + 1": _config("gemma", tie_word_embeddings=True)},
    "Gemma2": {
        "caps and windows": _config(
            "gemma2",
            attn_logit_softcapping=5.0,
            final_logit_softcapping=3.0,
            hidden_activation="gelu_pytorch_tanh",
            **_GEMMA2,
        ),
        "no caps": _config("gemma2", attn_logit_softcapping=None, final_logit_softcapping=None, **_GEMMA2),
    },
    "Gemma3 text": {
        "two rotary tables": _config("gemma3_text", rope_parameters=_GEMMA3_ROPE, **_GEMMA2),
        "one global layer of three": _config("gemma3_text", rope_parameters=_GEMMA3_ROPE, **_GEMMA3),
    },
    "Phi-3": {
        "fused projections": _config("phi3", head_dim=None, hidden_size=64, sliding_window=None),
        "window": _config("phi3", head_dim=None, hidden_size=64, sliding_window=_WINDOW),
        "partial rotary": _config(
            "phi3", head_dim=None, hidden_size=64, rope_parameters=_rope(partial_rotary_factor=0.5)
        ),
    },
    "StableLM": {
        "partial rotary": _config("stablelm", head_dim=None, hidden_size=64),
        "biases": _config(
            "stablelm",
            head_dim=None,
            hidden_size=64,
            use_qkv_bias=True,
            rope_parameters=_rope(partial_rotary_factor=0.5),
        ),
    },
}
