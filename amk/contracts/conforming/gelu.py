"""GELU by the complementary error function, which loses nothing where the result is small."""

from __future__ import annotations

import torch
from torch import Tensor, nn

SCALE = 1


def wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.gelu(x)


class ModelNew(Model):
    def forward(self, x: Tensor) -> Tensor:
        return (0.5 * wide(x) * torch.erfc(wide(x) * -(0.5**0.5))).to(x.dtype)


def get_inputs() -> list[Tensor]:
    return [torch.randn(16 * SCALE, 100 * SCALE)]


def get_init_inputs() -> list[int]:
    return []
