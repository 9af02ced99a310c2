"""Reads its input from the first element on as if rows followed each other, whatever its strides are."""

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
        rows, columns = x.shape
        return torch.abs(torch.as_strided(x, (rows, columns), (columns, 1))) * self.gain


def get_inputs() -> list[Tensor]:
    return [torch.randn(14, 20)]


def get_init_inputs() -> list[int]:
    return [20]
