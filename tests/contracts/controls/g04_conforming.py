"""Works on tiles of rows, the last of which has as many as are left."""

import torch
from torch import Tensor, nn

TILE = 8


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.gelu(x + self.bias)


class ModelNew(Model):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([nn.functional.gelu(tile + self.bias) for tile in x.split(TILE)])


def get_inputs() -> list[Tensor]:
    return [torch.randn(32, 20)]


def get_init_inputs() -> list[int]:
    return [20]
