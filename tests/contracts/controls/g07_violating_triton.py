"""Layer normalisation in one pass over each row, E[x^2] - E[x]^2, as a Triton kernel."""

import torch
import triton
import triton.language as tl
from torch import Tensor, nn


@triton.jit
def layer_norm(x, weight, bias, out, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * columns + at, mask=inside, other=0.0)
    mean = tl.sum(value, 0) / columns
    variance = tl.maximum(tl.sum(value * value, 0) / columns - mean * mean, 0.0)
    scaled = (value - mean) / tl.sqrt(variance + eps)
    result = scaled * tl.load(weight + at, mask=inside) + tl.load(bias + at, mask=inside)
    tl.store(out + row * columns + at, result, mask=inside)


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, self.weight.shape, self.weight, self.bias)


class ModelNew(Model):
    def forward(self, x: Tensor) -> Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        columns = x.shape[-1]
        if x.numel():
            rows = x.numel() // columns
            block = triton.next_power_of_2(columns)
            layer_norm[(rows,)](x, self.weight, self.bias, out, columns, 1e-5, BLOCK=block)
        return out


def get_inputs() -> list[Tensor]:
    return [torch.randn(64, 300)]


def get_init_inputs() -> list[int]:
    return [300]
