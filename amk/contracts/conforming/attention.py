"""Attention in two passes over blocks of keys: the largest score and the sum of weights, then the weighted values."""

from __future__ import annotations

import torch
from torch import Tensor, nn

SCALE = 1

BLOCK = 16


def wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


class Model(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v)


class ModelNew(Model):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if not k.shape[-2] or not k.shape[-1]:
            return super().forward(q, k, v)
        scaled = wide(q) * q.shape[-1] ** -0.5
        scores = [scaled @ keys.mT for keys in torch.split(wide(k), BLOCK, -2)]
        maximum = torch.stack([block.amax(-1, keepdim=True) for block in scores]).amax(0).detach()
        weights = [torch.exp(block - maximum) for block in scores]
        total = torch.stack([block.sum(-1, keepdim=True) for block in weights]).sum(0)
        parts = zip(weights, torch.split(wide(v), BLOCK, -2), strict=True)
        return torch.stack([block / total @ values for block, values in parts]).sum(0).to(q.dtype)


def get_inputs() -> list[Tensor]:
    return [torch.randn(2, 3, 20 * SCALE, 32) for _ in range(3)]


def get_init_inputs() -> list[int]:
    return []
