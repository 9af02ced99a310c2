"""Driving the machine by hand: a prompt, launches, tokens. The runtime's own session has tests of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from amk.interpreter.machine import Machine, Order
from amk.interpreter.memory import LoadRope, Memory, allocate
from amk.interpreter.semantics import embed
from amk.ir.graph import Graph
from amk.ir.schedule import Schedule
from amk.ir.tasks import Sample
from tests.builders import THETA, llama_graph, lower
from tests.interpreter.oracle import Oracle


@dataclass(frozen=True, kw_only=True)
class Model:
    """A small random Llama and its oracle. Fields but ``seed`` and ``scale`` are those of ``llama_graph``."""

    hidden: int = 64
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    intermediate: int = 96
    vocab: int = 97
    tied: bool = True
    seed: int = 0
    scale: float = 0.1

    @property
    def graph(self) -> Graph:
        names = (field.name for field in fields(self) if field.name not in {"seed", "scale"})
        return llama_graph(**{name: getattr(self, name) for name in names})

    @cached_property
    def weights(self) -> dict[str, NDArray[np.float32]]:
        return random_weights(self.graph, seed=self.seed, scale=self.scale)

    @cached_property
    def oracle(self) -> Oracle:
        return Oracle(weights=self.weights, heads=self.heads, kv_heads=self.kv_heads, head_dim=self.head_dim)

    def driver(self, *, seed: int | None = None, rope: LoadRope | None = None, **options: object) -> Driver:
        """A machine of this model; ``options`` are those of ``lower``."""
        return Driver.of(self, lower(self.graph, **options), seed=seed, rope=rope)

    def ids(self, count: int, seed: int = 1) -> list[int]:
        """A random prompt."""
        random = torch.Generator().manual_seed(seed)
        return torch.randint(self.vocab, (count,), generator=random).tolist()


@dataclass(kw_only=True)
class Driver:
    """A machine, its memory, and the position that a launch has reached."""

    memory: Memory
    machine: Machine
    pos: int = 0
    orders: list[Order] = field(default_factory=list)

    @classmethod
    def of(cls, model: Model, schedule: Schedule, *, seed: int | None = None, rope: LoadRope | None = None) -> Driver:
        def load(name: str) -> Tensor:
            return torch.from_numpy(model.weights[name])

        memory = allocate(schedule, load, rope or rope_loader(model.head_dim))
        return cls(memory=memory, machine=Machine(schedule, memory, seed=seed))

    @property
    def logits(self) -> Tensor:
        return self.memory["logits"]

    def start(self, ids: Sequence[int], *, tokens: int = 1, eos: Sequence[int] = ()) -> None:
        """Set the inputs and the launch state of a first step of ``tokens`` rows."""
        self.memory["prompt"][: len(ids)] = torch.tensor(ids, dtype=torch.int32)
        self.memory["prompt_length"][0] = len(ids)
        self.memory["eos"].fill_(-1)
        self.memory["eos"][: len(eos)] = torch.tensor(eos, dtype=torch.int32)
        self.memory["stop"][0] = 0
        self.pos = 0
        self.embed(ids[:tokens])

    def embed(self, ids: Sequence[int]) -> None:
        """The rows of a next step."""
        sample = next(task.op for task in self.machine.schedule.tasks if isinstance(task.op, Sample))
        embed(sample, self.memory, list(ids))

    def launch(self, *, tokens: int = 1, steps: int = 1) -> Order:
        order = self.machine.launch(pos=self.pos, tokens=tokens, steps=steps)
        self.pos += order.steps * tokens
        self.orders.append(order)
        return order

    def prefill(self, ids: Sequence[int], *, tokens: int = 1, eos: Sequence[int] = ()) -> None:
        """Run the prompt, ``tokens`` rows a step and the rest in one more; the first new token is then sampled."""
        whole, rest = divmod(len(ids), tokens)
        self.start(ids, tokens=tokens if whole else rest, eos=eos)
        if whole:
            self.launch(tokens=tokens, steps=whole)
        if rest:
            self.launch(tokens=rest)

    def generate(self, ids: Sequence[int], new: int, *, tokens: int = 1, single: bool = False) -> list[int]:
        """``new`` greedy tokens, in one launch behind the prompt's or, under ``single``, in a launch each."""
        self.prefill(ids, tokens=tokens)
        if single:
            for _ in range(new - 1):
                self.launch()
        elif new > 1:
            self.launch(steps=new - 1)
        return self.memory["token"][len(ids) : len(ids) + new].tolist()

    def advance(self, ids: Sequence[int], to: int) -> None:
        """Put rows ``[pos, to)`` of ``ids`` into the cache, up to eight a step, and make no logits."""
        self.memory["prompt_length"][0] = len(ids)
        self.memory["stop"][0] = 0
        while self.pos < to:
            tokens = min(8, to - self.pos)
            self.embed(ids[self.pos : self.pos + tokens])
            self.launch(tokens=tokens)
        self.embed(ids[to : to + 8])

    def teach(self, ids: Sequence[int], pos: int) -> Tensor:
        """The logits behind ``ids[pos]`` with rows ``[0, pos)`` in the cache: one step of one token."""
        self.memory["prompt_length"][0] = pos + 1
        self.memory["stop"][0] = 0
        self.embed([ids[pos]])
        self.pos = pos
        self.launch()
        return self.logits.clone()


def random_weights(graph: Graph, *, seed: int, scale: float) -> dict[str, NDArray[np.float32]]:
    """A checkpoint for ``graph``: normal matrices, gains around one, in float32 (not yet rounded to bf16)."""
    random = np.random.default_rng(seed)

    def tensor(shape: tuple[int, ...]) -> NDArray[np.float32]:
        normal = random.standard_normal(shape, dtype=np.float32) * np.float32(scale)
        return normal + np.float32(1) if len(shape) == 1 else normal

    return {record.name: tensor(record.shape) for record in graph.tensors}


def rope_loader(head_dim: int) -> LoadRope:
    """(table, positions) -> [positions, 2, head_dim/2] cos and sin, as ``allocate`` asks: of the plain embedding."""

    def table(number: int, positions: int) -> NDArray[np.float32]:
        turns = THETA ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
        angles = np.outer(np.arange(positions, dtype=np.float64), turns)
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    return table
