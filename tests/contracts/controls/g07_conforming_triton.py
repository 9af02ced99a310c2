"""Layer normalisation in two passes over each row, forward and backward, as Triton kernels."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn


@triton.jit
def normalise(x, out, inverse, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    value = tl.load(x + row * columns + at, mask=inside, other=0.0)
    mean = tl.sum(value, 0) / columns
    centred = tl.where(inside, value - mean, 0.0)
    deviation = tl.sqrt(tl.sum(centred * centred, 0) / columns + eps)
    tl.store(out + row * columns + at, centred / deviation, mask=inside)
    tl.store(inverse + row, 1.0 / deviation)


@triton.jit
def normalise_backward(slope, normal, inverse, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    gradient = tl.load(slope + row * columns + at, mask=inside, other=0.0)
    value = tl.load(normal + row * columns + at, mask=inside, other=0.0)
    mean = tl.sum(gradient, 0) / columns
    along = tl.sum(gradient * value, 0) / columns
    result = (gradient - mean - value * along) * tl.load(inverse + row)
    tl.store(out + row * columns + at, result, mask=inside)


class Normalise(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        x = x.contiguous()
        columns = x.shape[-1]
        out = torch.empty_like(x)
        inverse = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
        if x.numel():
            normalise[(inverse.numel(),)](x, out, inverse, columns, 1e-5, BLOCK=triton.next_power_of_2(columns))
        context.save_for_backward(out, inverse)
        return out

    @staticmethod
    def backward(context: Any, slope: Tensor) -> Tensor:
        normal, inverse = context.saved_tensors
        slope = slope.contiguous()
        columns = normal.shape[-1]
        out = torch.empty_like(normal)
        if out.numel():
            block = triton.next_power_of_2(columns)
            normalise_backward[(inverse.numel(),)](slope, normal, inverse, out, columns, BLOCK=block)
        return out


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(features) + 0.5)
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, self.weight.shape, self.weight, self.bias)


class ModelNew(Model):
    def forward(self, x: Tensor) -> Tensor:
        if x.dtype != torch.float32:
            raise TypeError("float32 only")
        return Normalise.apply(x) * self.weight + self.bias


def get_inputs() -> list[Tensor]:
    return [torch.randn(64, 300)]


def get_init_inputs() -> list[int]:
    return [300]
