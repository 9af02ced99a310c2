"""Starts a program for each block, the last of which has a mask."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

BLOCK = 256


@triton.jit
def scale(x, out, n, by, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) * by, mask=inside)


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        if blocks := triton.cdiv(x.numel(), BLOCK):
            scale[(blocks,)](x, out, x.numel(), 0.75, BLOCK=BLOCK)
        return out

    @staticmethod
    def backward(context: Any, slope: Tensor) -> Tensor:
        return 0.75 * slope


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 0.75 * x


class ModelNew(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.dtype != torch.float32:
            raise TypeError("float32 only")
        return Scale.apply(x)


def get_inputs() -> list[Tensor]:
    return [torch.randn(16, 64)]


def get_init_inputs() -> list[int]:
    return []
