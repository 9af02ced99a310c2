"""What a config.json alone rules out, before anything is imported or traced; every refusal names the field.

This net is for clear messages. The trace is what is trusted: a structure that slips through here still has to be
recognised op by op.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from amk.frontend.errors import BadFieldError, UnsupportedFieldError, UnsupportedTypeError

SUPPORTED_TYPES = (
    "gemma",
    "gemma2",
    "gemma3_text",
    "granite",
    "llama",
    "mistral",
    "olmo2",
    "phi3",
    "qwen2",
    "qwen3",
    "smollm3",
    "stablelm",
)
"""Model types whose structure the graph can say."""

TRACED_TYPES = frozenset((*SUPPORTED_TYPES, "cohere", "olmo"))
"""Model types that are traced: decoders whose checkpoints use the names of transformers' state dict. What their traces
have beyond the ops of the graph is refused there, by op and tensor."""

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

POSITIVE_INTEGERS = (*SIZES, "num_key_value_heads", "head_dim", "max_position_embeddings", "sliding_window")

POSITIVE_NUMBERS = (
    "rms_norm_eps",
    "layer_norm_eps",
    "rope_theta",
    "rope_local_base_freq",
    "embedding_multiplier",
    "attention_multiplier",
    "residual_multiplier",
    "logits_scaling",
    "query_pre_attn_scalar",
    "attn_logit_softcapping",
    "final_logit_softcapping",
)

Accepts = Callable[[Any], bool]


def _absent(value: Any) -> bool:
    return value is None or value is False


def _none_or_zero(value: Any) -> bool:
    return value is None or value == 0


def _all_in(*wanted: object) -> Accepts:
    return lambda value: value is None or all(item in wanted for item in value)


GATES = (None, "silu", "swish", "gelu", "gelu_pytorch_tanh")

_INTEGERS = 'take the checkpoint from before it was quantized (dtype="w8a16" makes integers of it)'
_EXPERTS = "mixtures of experts choose weights at run time"
_LATENT = "latent attention is another attention"
_GATE = "the gate must be silu, gelu, or gelu_pytorch_tanh"
_HEAD_NORMS = "of norms of queries and keys only RMS norms are built"

FIELDS: dict[str, tuple[Accepts, str]] = {
    "quantization_config": (
        _absent,
        'take the checkpoint from before it was quantized (dtype="w8a16" makes integers of it)',
    ),
    "text_config": (_absent, "only text models are read"),
    "vision_config": (_absent, "only text models are read"),
    "is_encoder_decoder": (_absent, "only decoders are read"),
    "num_local_experts": (_none_or_zero, _EXPERTS),
    "num_experts": (_none_or_zero, _EXPERTS),
    "n_routed_experts": (_none_or_zero, _EXPERTS),
    "kv_lora_rank": (_none_or_zero, _LATENT),
    "q_lora_rank": (_none_or_zero, _LATENT),
    "hidden_act": (lambda value: value in GATES, _GATE),
    "hidden_activation": (lambda value: value in GATES, _GATE),
    "use_qk_norm": (_absent, _HEAD_NORMS),
    "qk_layernorm": (_absent, _HEAD_NORMS),
    "use_parallel_residual": (_absent, "attention and MLP must follow one another"),
    "use_bidirectional_attention": (_absent, "attention must be causal"),
    "clip_qkv": (_absent, "clipped queries, keys and values are not built yet"),
    "attention_chunk_size": (_absent, "attention in chunks is not built yet"),
    "layer_types": (
        _all_in("full_attention", "sliding_attention"),
        "a layer must attend to every earlier position, or to those of a sliding window",
    ),
    "no_rope_layers": (_all_in(0, 1), "a layer either uses rotary positions (1) or does not (0)"),
}
"""Fields that change what is computed: what is accepted, and why the rest is not."""


def check_config(config: dict[str, Any]) -> None:
    """Refuse what ``config`` alone shows to be malformed or outside the supported structures.

    Raises
    ------
    UnsupportedTypeError, UnsupportedFieldError, BadFieldError
    """
    model_type = config.get("model_type")
    if model_type not in TRACED_TYPES:
        raise UnsupportedTypeError(model_type=model_type, known=", ".join(SUPPORTED_TYPES))
    _check_architecture(config)
    _check_sizes(config)
    _check_rope(config)
    for field, (accepts, why) in FIELDS.items():
        _check_field(config, field, accepts, why)


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
    for field in POSITIVE_INTEGERS:
        value = config.get(field)
        if value is not None and (not _is_integer(value) or value <= 0):
            raise BadFieldError(field=field, value=value, why="it must be a positive integer")
    for field in POSITIVE_NUMBERS:
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
    _check_partial(config, "partial_rotary_factor", head_dim)


def _check_partial(fields: dict[str, Any], prefix: str, head_dim: int) -> None:
    factor = fields.get("partial_rotary_factor")
    if factor is None:
        return
    if not _is_positive(factor) or factor > 1:
        raise BadFieldError(field=prefix, value=factor, why="it must be a number above 0 and at most 1")
    # transformers rounds down
    if int(head_dim * factor) % 2 or int(head_dim * factor) == 0:
        why = f"rotary positions need an even number of the {head_dim} elements of a head"
        raise BadFieldError(field=prefix, value=factor, why=why)


def _check_rope(config: dict[str, Any]) -> None:
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    for field in ("rope_parameters", "rope_scaling"):
        rope = config.get(field)
        if rope is None:
            continue
        if not isinstance(rope, dict):
            raise BadFieldError(field=field, value=rope, why="it must be an object or null")
        tables = {key: value for key, value in rope.items() if isinstance(value, dict)}
        if tables and len(tables) < len(rope):
            raise BadFieldError(
                field=field, value=rope, why="it is neither one rotary table nor one for each layer type"
            )
        for layer_type, table in tables.items():
            _check_rope_fields(f"{field}.{layer_type}", table, head_dim)
        if not tables:
            _check_rope_fields(field, rope, head_dim)


def _check_rope_fields(field: str, rope: dict[str, Any], head_dim: int) -> None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind not in ROPE_TYPES:
        raise UnsupportedFieldError(
            field=f"{field}.rope_type", value=kind, why=f"only {', '.join(ROPE_TYPES)} depend on the position alone"
        )
    _check_partial(rope, f"{field}.partial_rotary_factor", head_dim)
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
