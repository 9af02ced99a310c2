"""What is timed side by side: amk, and the ways in which PyTorch decodes the same weights."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch

from amk.measure.result import AMK
from amk.runtime.launch import KernelBackend

if TYPE_CHECKING:
    from amk.runtime.model import CompiledModel

TORCH_ARMS: Final = ("eager", "cublas-graph", "compile-graph")

_WARM_UP: Final = 3
"""Steps before one is captured."""


def synchronise() -> None:
    """Wait for the GPU, where there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class Arm(Protocol):
    """One way to decode.

    Attributes
    ----------
    name
        In results.
    launches
        Kernels' launches that the host made for the last ``decode``, where they are counted; 0 where they are not.
    kv_item_bytes
        Of a number in its cache.
    """

    name: str
    launches: int
    kv_item_bytes: int

    def open(self, prompt: Sequence[int], tokens: int) -> float:
        """Process a prompt; ``tokens`` will be asked for behind it. Seconds until its first token was there."""

    def decode(self, tokens: int) -> list[int]:
        """So many tokens, greedy; returns when they are there."""


class AmkArm:
    """The compiled model, all tokens of a ``decode`` in one launch."""

    name = AMK

    def __init__(self, model: CompiledModel) -> None:
        self.session = model.session
        self.launches = 0
        self.kv_item_bytes: int = getattr(torch, model.manifest.kv_dtype).itemsize

    def open(self, prompt: Sequence[int], tokens: int) -> float:
        began = time.perf_counter()
        self.session.prefill(list(prompt), new_tokens=tokens + 1)
        return time.perf_counter() - began

    def decode(self, tokens: int) -> list[int]:
        backend = self.session.backend
        before = backend.launches if isinstance(backend, KernelBackend) else 0
        made = list(self.session.decode(tokens))
        self.launches = backend.launches - before if isinstance(backend, KernelBackend) else 0
        return made


class EagerArm:
    """HuggingFace's model as it comes, with a static cache of the length that the sequence needs.

    Attention reads the whole of a static cache, used or not: a longer one would only slow it down.
    """

    name = "eager"
    launches = 0

    def __init__(self, model: Any) -> None:
        self.model = model
        self.kv_item_bytes: int = model.dtype.itemsize
        self.ids = torch.zeros((1, 1), dtype=torch.long, device=model.device)
        self.cache: Any = None

    def open(self, prompt: Sequence[int], tokens: int) -> float:
        from transformers import StaticCache

        synchronise()
        began = time.perf_counter()
        with torch.inference_mode():
            self.cache = StaticCache(config=self.model.config, max_cache_len=len(prompt) + tokens + _WARM_UP)
            self._choose(self._logits(torch.tensor([list(prompt)], device=self.model.device)))
        synchronise()
        seconds = time.perf_counter() - began
        self.prepare()
        return seconds

    def prepare(self) -> None:
        """What a decode needs beside an open sequence."""

    def decode(self, tokens: int) -> list[int]:
        made = torch.empty(tokens, dtype=torch.long, device=self.model.device)
        with torch.inference_mode():
            for at in range(tokens):
                self.step()
                made[at] = self.ids[0, 0]
        return [int(token) for token in made.tolist()]

    def step(self) -> None:
        """One token, left in ``ids``."""
        self._choose(self._logits(self.ids))

    def _logits(self, ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.model(input_ids=ids, past_key_values=self.cache, use_cache=True).logits
        return found

    def _choose(self, logits: torch.Tensor) -> None:
        self.ids.copy_(logits[:, -1:].argmax(dim=-1))


class GraphArm(EagerArm):
    """The same step, captured once into a CUDA graph: cuBLAS without the cost of launching."""

    name = "cublas-graph"

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.graph: Any = None

    def prepare(self) -> None:
        lengths = [layer.cumulative_length.clone() for layer in self.cache.layers]
        first = self.ids.clone()
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.inference_mode(), torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                super().step()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.inference_mode(), torch.cuda.graph(self.graph):
            super().step()
        # The warm-up moved on; its rows are written again.
        with torch.inference_mode():
            for layer, length in zip(self.cache.layers, lengths, strict=True):
                layer.cumulative_length.copy_(length)
            self.ids.copy_(first)

    def step(self) -> None:
        self.graph.replay()


class CompileArm(EagerArm):
    """The same step by torch.compile, which captures its own CUDA graphs."""

    name = "compile-graph"

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.compiled: Any = torch.compile(model, mode="reduce-overhead", dynamic=False)

    def prepare(self) -> None:
        with torch.inference_mode():
            for _ in range(_WARM_UP):
                self.step()

    def step(self) -> None:
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        out = self.compiled(input_ids=self.ids.clone(), past_key_values=self.cache, use_cache=True)
        self._choose(out.logits)


def torch_arm(name: str, model: Any) -> Arm:
    """An arm of ``TORCH_ARMS`` on a HuggingFace model."""
    kinds = {"eager": EagerArm, "cublas-graph": GraphArm, "compile-graph": CompileArm}
    return kinds[name](model)
