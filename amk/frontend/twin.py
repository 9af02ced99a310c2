"""A shrunken twin of a model: the same architecture, small sizes, random weights.

What can go wrong between HuggingFace and amk hangs on structure, not on size, and a twin is cheap enough to be decoded
beside HuggingFace before any model is handed out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from amk.frontend.trace import hf_config
from amk.ir.graph import Graph

LAYERS = 2
HEAD_DIM = 16
VOCAB = 259  # a prime: no tile divides it
WINDOW = 8  # short enough that a few tokens are past it

CAPS = {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}
"""Caps near what the twin's scores and logits reach: the caps of a large model would change nothing in a small one."""


def shrink(config: dict[str, Any]) -> dict[str, Any]:
    """``config`` with a few layers and small rows; head counts, options and the rotary kind stay.

    Each kind of layer that the model has is in the twin once, in the model's order. Where the heads together are not
    as wide as the residual stream, they are not in the twin either. Windows and caps shrink until they matter, and what
    scales the scores shrinks with the heads.
    """
    settled = hf_config(config)
    heads = config["num_attention_heads"]
    large = config.get("head_dim") or config["hidden_size"] // heads
    head_dim = _head_dim(settled, large)
    hidden = heads * head_dim + (head_dim if large * heads != config["hidden_size"] else 0)
    small = {
        **config,
        **_layers(settled),
        "head_dim": head_dim,
        "hidden_size": hidden,
        "intermediate_size": hidden * 3 // 2 + 4,
        "vocab_size": VOCAB,
        "pad_token_id": None,
    }
    if getattr(settled, "sliding_window", None):
        small["sliding_window"] = WINDOW
    for field, most in CAPS.items():
        if getattr(settled, field, None):
            small[field] = min(getattr(settled, field), most)
    if getattr(settled, "query_pre_attn_scalar", None):
        small["query_pre_attn_scalar"] = max(1, round(settled.query_pre_attn_scalar * head_dim / large))
    if getattr(settled, "attention_multiplier", None):
        small["attention_multiplier"] = min(settled.attention_multiplier * large / head_dim, 0.5)
    return small


def _head_dim(settled: Any, large: int) -> int:
    """A small size of heads of which an even number of elements turn."""
    factor = (getattr(settled, "rope_parameters", None) or {}).get("partial_rotary_factor") or 1.0
    sizes = (size for size in (HEAD_DIM, 2 * HEAD_DIM) if int(size * factor) >= 2 and int(size * factor) % 2 == 0)
    return next(sizes, large)


def _layers(settled: Any) -> dict[str, Any]:
    """Fields that say what each layer is, for the first layer of each kind."""
    count = settled.num_hidden_layers
    lists = {
        field: list(value)
        for field in ("layer_types", "no_rope_layers")
        if (value := getattr(settled, field, None)) is not None
    }
    kinds = list(zip(*lists.values(), strict=True)) or [()] * count
    chosen = [kinds.index(kind) for kind in dict.fromkeys(kinds)]
    if len(chosen) == 1:
        chosen *= LAYERS
    fields = {field: [value[layer] for layer in chosen] for field, value in lists.items()}
    return {"num_hidden_layers": len(chosen), **fields}


def random_tensors(graph: Graph, *, seed: int) -> dict[str, Tensor]:
    """bf16 weights for every tensor of ``graph``, of a size at which each part of the model matters.

    Matrices keep a row's magnitude (a small deviation would leave attention uniform and hide the rotary embedding),
    and gains differ from one (or a missing gain would not be seen); those that one is added to, from zero. Biases lie
    around zero, large enough to be missed.
    """
    generator = torch.Generator().manual_seed(seed)
    biases = {op.bias for op in graph.ops if getattr(op, "bias", None)}  # type: ignore[union-attr]
    offsets = {op.gain for op in graph.ops if getattr(op, "plus_one", False)}  # type: ignore[union-attr]

    def draw(name: str, shape: tuple[int, ...]) -> Tensor:
        x = torch.randn(shape, generator=generator)
        if name in biases:
            x = 0.5 * x
        elif name in offsets:
            x = 0.3 * x
        else:
            x = 1.0 + 0.3 * x if len(shape) == 1 else x * (1.5 / shape[1] ** 0.5)
        return x.to(torch.bfloat16)

    return {tensor.name: draw(tensor.name, tensor.shape) for tensor in graph.tensors}
