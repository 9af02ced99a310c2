"""Does one half on a thread of a pool that it never shuts down: the answer is right, and the threads stay."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x) * x


class ModelNew(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pool: ThreadPoolExecutor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.pool = self.pool or ThreadPoolExecutor(1, thread_name_prefix="halves")
        half = x.shape[0] // 2
        first = self.pool.submit(lambda: torch.tanh(x[:half]) * x[:half])
        second = torch.tanh(x[half:]) * x[half:]
        return torch.cat([first.result(), second])


def get_inputs() -> list[Tensor]:
    return [torch.randn(10, 30)]


def get_init_inputs() -> list[int]:
    return []
