"""The logarithm of a sum of exponentials: of halves, then of the two."""

from __future__ import annotations

import torch
from torch import Tensor, nn

SCALE = 1


def wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.logsumexp(x, -1)


class ModelNew(Model):
    def forward(self, x: Tensor) -> Tensor:
        if not x.numel():
            return super().forward(x)
        maximum = wide(x).amax(-1, keepdim=True).detach()
        shift = torch.where(maximum.isinf(), 0.0, maximum)
        terms = torch.exp(wide(x) - shift)
        half = x.shape[-1] // 2
        total = terms[..., :half].sum(-1) + terms[..., half:].sum(-1)
        return (torch.log(total) + shift.squeeze(-1)).to(x.dtype)


def get_inputs() -> list[Tensor]:
    return [torch.randn(16 * SCALE, 100 * SCALE)]


def get_init_inputs() -> list[int]:
    return []
