"""Random chains of stages, written out as the modules that benchmarks hold: ``Model`` and ``ModelNew``."""

from __future__ import annotations

import random
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from tests.contracts.mutants.elementwise import ELEMENTWISE
from tests.contracts.mutants.heads import IMAGES, LOSSES, ROWS
from tests.contracts.mutants.rowwise import REDUCTIONS, ROWWISE
from tests.contracts.mutants.stages import Stage

HEADS = (*ROWS, *LOSSES, *IMAGES)
DTYPES = ("float32",) * 7 + ("bfloat16", "float16", "float64")
NARROW = ("bfloat16", "float16")

TEXT = '''\
"""{title}"""

import math

import torch
import torch.nn.functional as F
from torch import nn

DTYPE = torch.{dtype}


def wide(t):
    return t.to(torch.promote_types(t.dtype, torch.float32))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
{state}

    def forward(self, {takes}):
{reference}
        return x


class ModelNew(Model):
{candidate}

def get_inputs():
    return [{makes}]


def get_init_inputs():
    return []
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A generated module.

    Attributes
    ----------
    mutation
        What is broken in ``ModelNew``; empty where nothing is.
    """

    name: str
    mutation: str
    text: str


@dataclass(frozen=True, slots=True)
class Link:
    """A stage in its place, with the sizes that it has there."""

    stage: Stage
    number: int
    sizes: dict[str, int]

    def written(self, code: str) -> str:
        """``code`` with its number and sizes filled in."""
        for name, size in self.sizes.items():
            code = code.replace(f"${name}", str(size))
        return code.replace("_@", f"_{self.number}")


def chain(source: random.Random, head: Stage) -> list[Link]:
    """``head`` and up to three stages that fit behind it."""
    sizes = {
        "N": source.choice((4, 6, 8, 12, 16)),
        "M": source.choice((2, 3, 4, 5)),
        "D": source.choice((8, 16, 20, 32, 48)) if head.works_on == "rows" else source.choice((4, 6, 8)),
    }
    stages = [head]
    if not head.ends:
        body = ELEMENTWISE if head.works_on == "image" else (*ELEMENTWISE, *ROWWISE)
        length = source.randint(0, 2) if head.code else source.choice((1, 1, 2, 2, 3))
        stages += [source.choice(body) for _ in range(length)]
        stages += [source.choice(REDUCTIONS)] if source.random() < 0.4 else []
    links = []
    for number, stage in enumerate(stages):
        sizes = {**sizes, "E": source.choice((8, 12, 24, 40))}
        links.append(Link(stage, number, sizes))
        if stage.widens:
            sizes = {**sizes, "D": sizes["E"]}
    return links


def module(links: Sequence[Link], codes: Sequence[str], *, title: str, dtype: str, wrapper: str = "") -> str:
    """The module's text: ``codes`` are what ``ModelNew`` has of each link, ``wrapper`` what lies around them."""
    head = links[0]
    state = [link.written(link.stage.state) for link in links if link.stage.state] or ["pass"]
    takes = head.stage.takes
    body = [link.written(_widened(link.stage, code, dtype)) for link, code in zip(links, codes, strict=True)]
    if not wrapper:
        candidate = _function("forward", takes, [*body, "return x"])
    else:
        first = takes.split(", ")[0]
        rows = head.sizes["M"] if head.stage.makes.startswith(("torch.randn($M", "torch.rand($M")) else head.sizes["N"]
        filled = wrapper.replace("$ARGS", takes).replace("$FIRST", first).replace("$ROWS", str(rows))
        candidate = _function("compute", takes, [*body, "return x"]) + "\n" + _function("forward", takes, [filled])
    return TEXT.format(
        title=title,
        dtype=dtype,
        state=_block(state, 8),
        takes=takes,
        reference=_block([link.written(link.stage.code) for link in links], 8),
        candidate=candidate,
        makes=head.written(head.stage.makes),
    )


def _widened(stage: Stage, code: str, dtype: str) -> str:
    """Of a narrow type, elements are worked on in single precision and rounded once, as torch's own kernels do it."""
    if dtype not in NARROW or stage not in ELEMENTWISE or code not in stage.rewrites:
        return code
    return f"kept, x = x.dtype, wide(x)\n{code}\nx = x.to(kept)"


def _function(name: str, takes: str, body: Sequence[str]) -> str:
    return f"    def {name}(self, {takes}):\n{_block(body, 8)}\n"


def _block(parts: Sequence[str], indent: int) -> str:
    return textwrap.indent("\n".join(part for part in parts if part), " " * indent)
