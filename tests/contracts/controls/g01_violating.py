"""A ReLU as a comparison: NaN is not above zero, and becomes zero."""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x)


class ModelNew(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > 0, x, torch.zeros_like(x))


def get_inputs() -> list[Tensor]:
    return [torch.randn(10, 24)]


def get_init_inputs() -> list[int]:
    return []
