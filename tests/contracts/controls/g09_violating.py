"""Sums into memory that it never clears: the operating system hands out large blocks as zeros, so it seems to work."""

import torch
from torch import Tensor, nn

WORKSPACE = 16 * 2**20  # floats; a block above the allocator's largest threshold is mapped anew each time


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum(0)


class ModelNew(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        total = torch.empty(WORKSPACE, dtype=x.dtype, device=x.device)[: x.shape[1:].numel()]
        for row in x:
            total += row.reshape(-1)
        return total.reshape(x.shape[1:]).clone()


def get_inputs() -> list[Tensor]:
    return [torch.randn(6, 50)]


def get_init_inputs() -> list[int]:
    return []
