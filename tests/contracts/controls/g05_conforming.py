"""Reads its input as rows that follow each other, and sees to it that they do."""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.abs(x) * self.gain


class ModelNew(Model):
    def forward(self, x: Tensor) -> Tensor:
        rows = x.contiguous().view(-1, x.shape[-1])
        return torch.abs(rows).mul(self.gain).view(x.shape)


def get_inputs() -> list[Tensor]:
    return [torch.randn(14, 20)]


def get_init_inputs() -> list[int]:
    return [20]
