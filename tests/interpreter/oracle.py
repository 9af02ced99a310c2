"""A Llama written the plain way, in float64 and without a cache: what the machine is compared with.

It shares nothing with ``amk``: whole sequences at once, rotation by complex numbers, no hops, no splits. Matrices are
rounded to bf16 first, as amk reads them, so that a difference is the machine's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.builders import EMBEDDING, EPS, HEAD, THETA


@dataclass(frozen=True, kw_only=True)
class Oracle:
    """``weights`` by HuggingFace's names, in float32."""

    weights: Mapping[str, NDArray[np.float32]]
    heads: int
    kv_heads: int
    head_dim: int

    def matrix(self, name: str) -> Tensor:
        return torch.from_numpy(self.weights[name]).to(torch.bfloat16).to(torch.float64)

    def norm(self, x: Tensor, name: str) -> Tensor:
        gain = torch.from_numpy(self.weights[name]).to(torch.float64)
        return x / torch.sqrt((x**2).mean(-1, keepdim=True) + EPS) * gain

    def rotate(self, x: Tensor) -> Tensor:
        """x is [positions, heads, head_dim]; element i and i + head_dim/2 are one complex number."""
        half = self.head_dim // 2
        turns = THETA ** (-torch.arange(half, dtype=torch.float64) * 2 / self.head_dim)
        angles = torch.outer(torch.arange(x.shape[0], dtype=torch.float64), turns)
        turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)[:, None]
        return torch.cat((turned.real, turned.imag), dim=-1)

    def attention(self, x: Tensor, prefix: str) -> Tensor:
        positions = x.shape[0]

        def heads(part: str) -> Tensor:
            return (x @ self.matrix(f"{prefix}{part}_proj.weight").T).reshape(positions, -1, self.head_dim)

        q, k, v = self.rotate(heads("q")), self.rotate(heads("k")), heads("v")
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        scores = torch.einsum("qhd,khd->hqk", q, k) / self.head_dim**0.5
        later = torch.ones(positions, positions, dtype=torch.bool).triu(1)
        mixed = torch.einsum("hqk,khd->qhd", scores.masked_fill(later, -torch.inf).softmax(-1), v)
        return mixed.reshape(positions, -1) @ self.matrix(f"{prefix}o_proj.weight").T

    def mlp(self, x: Tensor, prefix: str) -> Tensor:
        gate, up = (x @ self.matrix(f"{prefix}{part}_proj.weight").T for part in ("gate", "up"))
        return (gate * torch.sigmoid(gate) * up) @ self.matrix(f"{prefix}down_proj.weight").T

    def logits(self, ids: Sequence[int]) -> Tensor:
        """[positions, vocab] float64."""
        x = self.matrix(EMBEDDING)[list(ids)]
        layer = 0
        while f"model.layers.{layer}.input_layernorm.weight" in self.weights:
            prefix = f"model.layers.{layer}."
            x = x + self.attention(self.norm(x, f"{prefix}input_layernorm.weight"), f"{prefix}self_attn.")
            x = x + self.mlp(self.norm(x, f"{prefix}post_attention_layernorm.weight"), f"{prefix}mlp.")
            layer += 1
        head = self.matrix(HEAD if HEAD in self.weights else EMBEDDING)
        return self.norm(x, "model.norm.weight") @ head.T

    def greedy(self, ids: Sequence[int], new: int) -> list[int]:
        """The ``new`` tokens that follow ``ids``."""
        all_ids = list(ids)
        for _ in range(new):
            all_ids.append(int(self.logits(all_ids)[-1].argmax()))
        return all_ids[len(ids) :]
