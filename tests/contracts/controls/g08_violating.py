"""Adds the residual in place: the right answer, and the caller's tensor is another one afterwards."""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        total = x + residual
        norm = total * torch.rsqrt(total.square().mean(-1, keepdim=True) + 1e-6)
        return norm * self.gain, total


class ModelNew(Model):
    def forward(self, x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        total = residual.add_(x)
        norm = total * torch.rsqrt(total.square().mean(-1, keepdim=True) + 1e-6)
        return norm * self.gain, total


def get_inputs() -> list[Tensor]:
    return [torch.randn(9, 24), torch.randn(9, 24)]


def get_init_inputs() -> list[int]:
    return [24]
