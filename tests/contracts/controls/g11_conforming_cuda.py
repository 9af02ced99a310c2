"""Replays a captured graph, and returns a copy of its output. The graph reads its weight from where it is."""

from typing import Any

import torch
from torch import Tensor, nn


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x * self.weight)


class Graphs:
    """One graph for each shape, of one weight."""

    def __init__(self) -> None:
        self.held: dict[tuple[int, ...], tuple[torch.cuda.CUDAGraph, Tensor, Tensor]] = {}

    def run(self, x: Tensor, weight: Tensor) -> Tensor:
        key = (*x.shape, weight.data_ptr())
        if key not in self.held:
            graph, given = torch.cuda.CUDAGraph(), x.clone(memory_format=torch.contiguous_format)
            torch.tanh(given * weight)
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                out = torch.tanh(given * weight)
            self.held[key] = graph, given, out
        graph, given, out = self.held[key]
        given.copy_(x)
        graph.replay()
        return out.clone()


class Replayed(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor, graphs: Graphs) -> Tensor:
        context.save_for_backward(x, weight)
        return graphs.run(x, weight)

    @staticmethod
    def backward(context: Any, slope: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight = context.saved_tensors
        inner = slope * (1 - torch.tanh(x * weight).square())
        return inner * weight, (inner * x).reshape(-1, len(weight)).sum(0), None


class ModelNew(Model):
    def __init__(self, features: int) -> None:
        super().__init__(features)
        self.graphs = Graphs()

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype != torch.float32 or not x.numel():
            return super().forward(x)
        return Replayed.apply(x, self.weight, self.graphs)


def get_inputs() -> list[Tensor]:
    return [torch.randn(16, 100)]


def get_init_inputs() -> list[int]:
    return [100]
