"""A Triton kernel called as it is: autograd knows nothing of it."""

import torch
import triton
import triton.language as tl
from torch import Tensor, nn


@triton.jit
def leaky(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, tl.where(value > 0, value, value * 0.125), mask=at < n)


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.leaky_relu(x, 0.125)


class ModelNew(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        if x.numel():
            leaky[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
        return out


def get_inputs() -> list[Tensor]:
    return [torch.randn(31, 90)]


def get_init_inputs() -> list[int]:
    return []
