"""A Triton kernel for the forward and one for the backward."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn


@triton.jit
def leaky(along, x, out, n, BLOCK: tl.constexpr):
    """``along`` where x is positive, an eighth of it elsewhere: the forward is the backward with x for a slope."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(along + at, mask=at < n)
    tl.store(out + at, tl.where(tl.load(x + at, mask=at < n) > 0, value, value * 0.125), mask=at < n)


def launch(along: Tensor, x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    if x.numel():
        leaky[(triton.cdiv(x.numel(), 256),)](along, x, out, x.numel(), BLOCK=256)
    return out


class Leaky(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        x = x.contiguous()
        context.save_for_backward(x)
        return launch(x, x)

    @staticmethod
    def backward(context: Any, slope: Tensor) -> Tensor:
        (x,) = context.saved_tensors
        return launch(slope.contiguous(), x)


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.leaky_relu(x, 0.125)


class ModelNew(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return Leaky.apply(x)


def get_inputs() -> list[Tensor]:
    return [torch.randn(31, 90)]


def get_init_inputs() -> list[int]:
    return []
