"""A variance of parts, taken from the first element, and merged from their means and their sums of squares."""

from __future__ import annotations

import torch
from torch import Tensor, nn

SCALE = 1

PART = 32


def wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.var(x, -1)


class ModelNew(Model):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] < 2:
            return super().forward(x)
        count, mean, squares = 0, wide(x).new_zeros(x.shape[:-1]), wide(x).new_zeros(x.shape[:-1])
        for part in torch.split(wide(x) - wide(x)[..., :1].detach(), PART, -1):
            new = part.mean(-1)
            apart, both = new - mean, count + part.shape[-1]
            around = (part - new.unsqueeze(-1)).square().sum(-1)
            squares = squares + around + apart.square() * (count * part.shape[-1] / both)
            mean, count = mean + apart * (part.shape[-1] / both), both
        return (squares / (count - 1)).to(x.dtype)


def get_inputs() -> list[Tensor]:
    return [torch.randn(16 * SCALE, 100 * SCALE)]


def get_init_inputs() -> list[int]:
    return []
