"""Transposes its weight at the first call and keeps that: a weight that is loaded or trained later is never seen."""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, features) / features**0.5)
        self.bias = nn.Parameter(torch.randn(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias)


class ModelNew(Model):
    def __init__(self, features: int, outputs: int) -> None:
        super().__init__(features, outputs)
        self.packed: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.packed is None:
            self.packed = self.weight.detach().t().contiguous()
        return x @ self.packed + self.bias


def get_inputs() -> list[Tensor]:
    return [torch.randn(7, 36)]


def get_init_inputs() -> list[int]:
    return [36, 20]
