"""Keeps between calls what depends on sizes alone, by size and dtype; its weight it reads anew each time."""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[-2], dtype=x.dtype, device=x.device)
        return x * self.weight + (places / 64)[:, None]


class ModelNew(Model):
    def __init__(self, features: int) -> None:
        super().__init__(features)
        self.tables: dict[tuple[int, torch.dtype, torch.device], Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        key = (x.shape[-2], x.dtype, x.device)
        if key not in self.tables:
            self.tables[key] = torch.arange(key[0], dtype=x.dtype, device=x.device)[:, None] / 64
        return self.tables[key] + self.weight * x


def get_inputs() -> list[Tensor]:
    return [torch.randn(5, 9, 22)]


def get_init_inputs() -> list[int]:
    return [22]
