"""A cumulative sum: within blocks, then of the blocks' totals."""

from __future__ import annotations

import torch
from torch import Tensor, nn

SCALE = 1

BLOCK = 16


def wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cumsum(x, -1)


class ModelNew(Model):
    def forward(self, x: Tensor) -> Tensor:
        before, sums = wide(x).new_zeros((*x.shape[:-1], 1)), []
        for block in torch.split(wide(x), BLOCK, -1):
            sums.append(before + torch.cumsum(block, -1))
            before = sums[-1][..., -1:] if block.shape[-1] else before
        return torch.cat(sums, -1).to(x.dtype)


def get_inputs() -> list[Tensor]:
    return [torch.randn(16 * SCALE, 100 * SCALE)]


def get_init_inputs() -> list[int]:
    return []
