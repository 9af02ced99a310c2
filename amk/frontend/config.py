"""What a config.json alone rules out, before anything is imported or traced; every refusal names the field.

This net is for clear messages. The trace is what is trusted: a structure that slips through here still has to be
recognised op by op.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from amk.frontend.errors import BadFieldError, UnsupportedFieldError, UnsupportedTypeError

PLAIN_TYPES = ("llama", "mistral")
"""Model types that have the plain Llama structure."""

TRACED_TYPES = frozenset(
    (
        *PLAIN_TYPES,
        "cohere",
        "gemma",
        "gemma2",
        "granite",
        "olmo",
        "olmo2",
        "phi3",
        "qwen2",
        "qwen3",
        "smollm3",
        "stablelm",
    )
)
"""Model types that are traced: decoders whose checkpoints use the names of transformers' state dict. What their traces
have beyond the plain structure is refused there, by op and tensor."""

ROPE_TYPES = ("default", "linear", "llama3", "yarn")
"""Rotary scalings whose factors depend on the position alone, not on the length of the sequence."""

ROPE_FIELDS = {
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor",),
}
"""Numbers that each scaling needs."""

SIZES = ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers", "vocab_size")
"""Fields without which a config describes no model; transformers would fill in those of a 7B model."""

Accepts = Callable[[Any], bool]


def _absent(value: Any) -> bool:
    return value is None or value is False


def _one(value: Any) -> bool:
    return value is None or value == 1


def _none_or_zero(value: Any) -> bool:
    return value is None or value == 0


def _all(wanted: object) -> Accepts:
    return lambda value: value is None or all(item == wanted for item in value)


_EXPERTS = "mixtures of experts choose weights at run time"
_MULTIPLIER = "the plain structure has no multipliers"
_BIAS = "linear layers with biases are not built yet"
_LATENT = "latent attention is another attention"
_CAP = "soft-capped logits are not built yet"

FIELDS: dict[str, tuple[Accepts, str]] = {
    "quantization_config": (_absent, "the weights must be stored as bf16, fp16 or fp32"),
    "text_config": (_absent, "only text models are read"),
    "vision_config": (_absent, "only text models are read"),
    "is_encoder_decoder": (_absent, "only decoders are read"),
    "num_local_experts": (_none_or_zero, _EXPERTS),
    "num_experts": (_none_or_zero, _EXPERTS),
    "n_routed_experts": (_none_or_zero, _EXPERTS),
    "kv_lora_rank": (_none_or_zero, _LATENT),
    "q_lora_rank": (_none_or_zero, _LATENT),
    "hidden_act": (lambda value: value in (None, "silu", "swish"), "the gate must be silu"),
    "hidden_activation": (lambda value: value in (None, "silu", "swish"), "the gate must be silu"),
    "attention_bias": (_absent, _BIAS),
    "mlp_bias": (_absent, _BIAS),
    "use_qkv_bias": (_absent, _BIAS),
    "use_qk_norm": (_absent, "norms of queries and keys are not built yet"),
    "qk_layernorm": (_absent, "norms of queries and keys are not built yet"),
    "use_parallel_residual": (_absent, "attention and MLP must follow one another"),
    "use_bidirectional_attention": (_absent, "attention must be causal"),
    "attn_logit_softcapping": (_absent, _CAP),
    "final_logit_softcapping": (_absent, _CAP),
    "embedding_multiplier": (_one, _MULTIPLIER),
    "residual_multiplier": (_one, _MULTIPLIER),
    "logits_scaling": (_one, _MULTIPLIER),
    "logit_scale": (_one, _MULTIPLIER),
    "clip_qkv": (_absent, "clipped queries, keys and values are not built yet"),
    "attention_chunk_size": (_absent, "attention must reach every earlier position"),
    "layer_types": (_all("full_attention"), "attention must reach every earlier position in every layer"),
    "no_rope_layers": (_all(1), "every layer must use rotary positions"),
    "partial_rotary_factor": (_one, "rotary positions must cover the whole head"),
}
"""Fields that change what is computed: what is accepted, and why the rest is not."""


def check_config(config: dict[str, Any]) -> None:
    """Refuse what ``config`` alone shows to be malformed or outside the plain Llama structure.

    Raises
    ------
    UnsupportedTypeError, UnsupportedFieldError, BadFieldError
    """
    model_type = config.get("model_type")
    if model_type not in TRACED_TYPES:
        raise UnsupportedTypeError(model_type=model_type, known=", ".join(PLAIN_TYPES))
    _check_architecture(config)
    _check_sizes(config)
    _check_rope(config)
    for field, (accepts, why) in FIELDS.items():
        _check_field(config, field, accepts, why)
    if config.get("use_sliding_window", True):
        _check_field(config, "sliding_window", _absent, "attention must reach every earlier position")


def _check_field(config: dict[str, Any], field: str, accepts: Accepts, why: str) -> None:
    value = config.get(field)
    try:
        accepted = accepts(value)
    except TypeError as error:
        raise BadFieldError(field=field, value=value, why="it has the wrong type") from error
    if not accepted:
        raise UnsupportedFieldError(field=field, value=value, why=why)


def _check_architecture(config: dict[str, Any]) -> None:
    names = config.get("architectures") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadFieldError(field="architectures", value=names, why="it must be a list of class names")
    if names and not any(name.endswith("ForCausalLM") for name in names):
        raise UnsupportedFieldError(field="architectures", value=names, why="only causal language models are read")


def _check_sizes(config: dict[str, Any]) -> None:
    for field in SIZES:
        if config.get(field) is None:
            raise BadFieldError(field=field, value=None, why="it is missing")
    for field in (*SIZES, "num_key_value_heads", "head_dim", "max_position_embeddings"):
        value = config.get(field)
        if value is not None and (not _is_integer(value) or value <= 0):
            raise BadFieldError(field=field, value=value, why="it must be a positive integer")
    for field in ("rms_norm_eps", "rope_theta"):
        value = config.get(field)
        if value is not None and not _is_positive(value):
            raise BadFieldError(field=field, value=value, why="it must be a positive number")
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    kv_heads = config.get("num_key_value_heads") or heads
    if heads % kv_heads:
        raise BadFieldError(
            field="num_key_value_heads", value=kv_heads, why=f"it must divide num_attention_heads={heads}"
        )
    if config.get("head_dim") is None and hidden % heads:
        raise BadFieldError(field="num_attention_heads", value=heads, why=f"it must divide hidden_size={hidden}")
    head_dim = config.get("head_dim") or hidden // heads
    if head_dim % 2:
        raise BadFieldError(field="head_dim", value=head_dim, why="rotary positions need an even number")


def _check_rope(config: dict[str, Any]) -> None:
    for field in ("rope_parameters", "rope_scaling"):
        rope = config.get(field)
        if rope is None:
            continue
        if not isinstance(rope, dict):
            raise BadFieldError(field=field, value=rope, why="it must be an object or null")
        _check_rope_fields(field, rope)


def _check_rope_fields(field: str, rope: dict[str, Any]) -> None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if any(isinstance(value, dict) for value in rope.values()):
        raise UnsupportedFieldError(field=field, value=rope, why="all layers must share one rotary table")
    if kind not in ROPE_TYPES:
        raise UnsupportedFieldError(
            field=f"{field}.rope_type", value=kind, why=f"only {', '.join(ROPE_TYPES)} depend on the position alone"
        )
    _check_field(rope, "partial_rotary_factor", _one, "rotary positions must cover the whole head")
    for needed in ROPE_FIELDS.get(kind, ()):
        if not _is_positive(rope.get(needed)):
            raise BadFieldError(field=f"{field}.{needed}", value=rope.get(needed), why="it must be a positive number")
    theta = rope.get("rope_theta")
    if theta is not None and not _is_positive(theta):
        raise BadFieldError(field=f"{field}.rope_theta", value=theta, why="it must be a positive number")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
