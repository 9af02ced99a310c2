"""A ReLU as a comparison the other way round: NaN is not below zero, and stays."""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x)


class ModelNew(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x <= 0, torch.zeros_like(x), x)


def get_inputs() -> list[Tensor]:
    return [torch.randn(10, 24)]


def get_init_inputs() -> list[int]:
    return []
