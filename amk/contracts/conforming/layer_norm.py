"""Layer normalisation: the mean first, then the squares around it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

SCALE = 1


def wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, self.weight.shape, self.weight, self.bias)


class ModelNew(Model):
    def forward(self, x: Tensor) -> Tensor:
        centred = wide(x) - wide(x).mean(-1, keepdim=True)
        normal = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + 1e-5)
        return (normal * wide(self.weight) + wide(self.bias)).to(x.dtype)


def get_inputs() -> list[Tensor]:
    return [torch.randn(16 * SCALE, 96 * SCALE)]


def get_init_inputs() -> list[int]:
    return [96 * SCALE]
