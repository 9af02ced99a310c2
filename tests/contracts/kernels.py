"""Kernels that tests name by their module, or as text, and what comes of asking them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import torch
from torch import Tensor

from amk.contracts.outcomes import Answer, Ask, Value
from amk.contracts.sources import Text
from amk.contracts.subject import Process

NUMBER = 3


def double(x: Tensor) -> Tensor:
    return x * 2


def times(factor: int) -> Callable[[Tensor], Tensor]:
    return lambda x: x * factor


class Holder:
    @staticmethod
    def double(x: Tensor) -> Tensor:
        return x * 2


HEADER = "import random, threading, time\nimport torch\nfrom torch import nn\n"
X = torch.arange(6.0).reshape(2, 3)

CLASSES = """
class Model(nn.Module):
    def __init__(self, rows, columns, scale=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(rows, columns))
        self.register_buffer("mean", torch.zeros(columns))
        self.scale = scale
    def forward(self, x):
        return (x - self.mean) @ self.weight.T * self.scale

class ModelNew(Model):
    pass

def get_inputs():
    return [torch.randn(2, 3)]

def get_init_inputs():
    return [4, 3]
"""


def text(body: str, attribute: str = "kernel") -> Text:
    code = textwrap.dedent(body)
    if "def kernel" not in code and "class " not in code:
        code = f"def kernel(*inputs):\n    x = inputs[0]\n{textwrap.indent(code, '    ')}"
    return Text(code=HEADER + code, attribute=attribute)


def answer(process: Process, *inputs: Value, **asked: object) -> Answer:
    outcome = process.ask(Ask(inputs=inputs, **asked))  # type: ignore[arg-type]
    assert isinstance(outcome, Answer), outcome
    return outcome
