"""Works in place, on tensors of its own; what it returns of an input is the view that the reference returns."""

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand(features) + 0.5)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        norm = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        return {"norm": norm * self.gain, "transposed": x.mT}


class ModelNew(Model):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        scale = x.square().mean(-1, keepdim=True)
        norm = x * scale.add_(1e-6).rsqrt_()
        return {"norm": norm * self.gain, "transposed": x.transpose(-1, -2)}


def get_inputs() -> list[Tensor]:
    return [torch.randn(9, 24)]


def get_init_inputs() -> list[int]:
    return [24]
