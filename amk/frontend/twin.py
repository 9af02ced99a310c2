"""A shrunken twin of a model: the same architecture, small sizes, random weights.

What can go wrong between HuggingFace and amk hangs on structure, not on size, and a twin is cheap enough to be decoded
beside HuggingFace before any model is handed out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from amk.ir.graph import Graph

LAYERS = 2
HEAD_DIM = 16
VOCAB = 259  # a prime: no tile divides it


def shrink(config: dict[str, Any]) -> dict[str, Any]:
    """``config`` with two layers and small rows; head counts, options and the rotary kind stay.

    Where the heads together are not as wide as the residual stream, they are not in the twin either.
    """
    heads = config["num_attention_heads"]
    wide = (config.get("head_dim") or config["hidden_size"] // heads) * heads
    hidden = heads * HEAD_DIM + (HEAD_DIM if wide != config["hidden_size"] else 0)
    small = {
        **config,
        "num_hidden_layers": LAYERS,
        "head_dim": HEAD_DIM,
        "hidden_size": hidden,
        "intermediate_size": hidden * 3 // 2 + 4,
        "vocab_size": VOCAB,
        "pad_token_id": None,
    }
    if config.get("layer_types"):
        small["layer_types"] = config["layer_types"][:LAYERS]
    return small


def random_tensors(graph: Graph, *, seed: int) -> dict[str, Tensor]:
    """bf16 weights for every tensor of ``graph``, of a size at which each part of the model matters.

    Matrices keep a row's magnitude (a small deviation would leave attention uniform and hide the rotary embedding),
    and gains differ from one (or a missing gain would not be seen).
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(shape: tuple[int, ...]) -> Tensor:
        x = torch.randn(shape, generator=generator)
        x = 1.0 + 0.3 * x if len(shape) == 1 else x * (1.5 / shape[1] ** 0.5)
        return x.to(torch.bfloat16)

    return {tensor.name: draw(tensor.shape) for tensor in graph.tensors}
