"""What identifies a checkpoint: the digest of its config, and where two configs of one model differ."""

from __future__ import annotations

import hashlib
from typing import Any

from amk.frontend.files import canonical_json

IRRELEVANT = frozenset(
    {
        "_attn_implementation",
        "_attn_implementation_autoset",
        "_commit_hash",
        "_name_or_path",
        "attention_dropout",
        "bos_token_id",
        "dtype",
        "eos_token_id",
        "initializer_range",
        "name_or_path",
        "output_attentions",
        "output_hidden_states",
        "pad_token_id",
        "return_dict",
        "torch_dtype",
        "transformers_version",
        "unk_token_id",
        "use_cache",
    }
)
"""Config fields that no logit depends on: names, versions, training, and what a caller may choose."""


def relevant_fields(config: dict[str, Any]) -> dict[str, Any]:
    """The fields that logits may depend on. Whole floats become integers: 1e5, 100000 and 100000.0 are one theta."""
    return {key: _settle(value) for key, value in config.items() if key not in IRRELEVANT}


def config_digest(config: dict[str, Any]) -> str:
    """sha256 of the canonical form of the fields that logits may depend on, in hex."""
    return hashlib.sha256(canonical_json(relevant_fields(config))).hexdigest()


def differing_fields(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    """Fields that both configs have and that differ; the two ways to write rotary fields are compared as one."""
    a, b = _one_dialect(relevant_fields(first)), _one_dialect(relevant_fields(second))
    return sorted(key for key in a.keys() & b.keys() if a[key] != b[key])


def _settle(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _settle(item) for key, item in value.items()}
    return [_settle(item) for item in value] if isinstance(value, list) else value


def _one_dialect(fields: dict[str, Any]) -> dict[str, Any]:
    """``rope_parameters`` and ``rope_scaling`` with ``rope_theta`` as one set of fields."""
    rest = {key: value for key, value in fields.items() if key not in ("rope_parameters", "rope_scaling")}
    rope = {**(fields.get("rope_scaling") or {}), **(fields.get("rope_parameters") or {})}
    kind = rope.pop("type", "default")
    theta = rope.pop("rope_theta", rest.get("rope_theta"))
    settled = {"rope_theta": theta, "rope_type": kind, **{f"rope.{key}": value for key, value in rope.items()}}
    settled["rope_type"] = rope.get("rope_type", kind)
    return {**rest, **{key: value for key, value in settled.items() if value is not None}}
