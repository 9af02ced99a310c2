"""A compiled model under the gates: its decode steps against HuggingFace's.

The kernel is a function of token ids: the prompt but for its last tokens goes through steps of several rows, those
through decode steps of one, and what comes back are the logits behind each of them. The reference is HuggingFace in
bf16, which is what a user would run instead; float64, with the weights as amk packs them, says how far either is off
(norms, rotations and softmax HuggingFace computes in float32 whatever it is asked for).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn

from amk.contracts.sources import Factory, KernelPair
from amk.contracts.verdicts import Judgement
from amk.contracts.verify import Options, judge_kernel
from amk.frontend.checkpoint import resolve
from amk.frontend.oracle import float32_model
from amk.ir.buffers import Quantization
from amk.pipeline import compile as compile_model
from amk.runtime.model import CompiledModel

DECODED: Final = 2
"""Tokens of an input that decode steps process, where it has so many beside its first."""

PROMPT_TOKENS: Final = 9
"""Of an input: where a pass has eight rows, one full pass is not all of it."""

CONTEXT: Final = 1024
"""Positions that the cache has at most: the gates' longest input is far shorter."""

TIMEOUT_S: Final = 600.0
MEMORY_BYTES: Final = 1 << 40
"""Of address space, of which a compiled model reserves far more than it takes."""


def judge_model(
    model: CompiledModel, *, gates: tuple[str, ...] = (), seed: int = 0, budget_s: float = 1200.0
) -> Judgement:
    """Judge a compiled model by the gates; those that need floating inputs do not apply.

    Parameters
    ----------
    model
        Of a checkpoint that is found again by its source: an alias, a folder, a GGUF file, a hub id.
    gates
        Ids of those to run; none for all.
    budget_s
        For all gates together.

    Raises
    ------
    BadOptionError
        There is no such gate.
    ForkServerError
        No process could be started.
    """
    options = Options(
        device="cuda" if model.arch.startswith("sm_") else "cpu",
        seed=seed,
        gates=gates,
        timeout_s=TIMEOUT_S,
        first_timeout_s=TIMEOUT_S,
        load_timeout_s=TIMEOUT_S,
        memory_bytes=MEMORY_BYTES,
        budget_s=budget_s,
    )
    return judge_kernel(pair_of(model), options)


def pair_of(model: CompiledModel) -> KernelPair:
    """``model``, compiled once more where it is judged, and HuggingFace with the same weights."""
    manifest, schedule = model.manifest, model.schedule
    context = min(schedule.max_context, CONTEXT)
    tokens = schedule.symbol("tokens").high
    weights = (manifest.dtype, manifest.group_size)
    compiled = (manifest.model, model.arch, schedule.target.name, *weights, manifest.kv_dtype, context, tokens)
    return KernelPair(
        name=f"{manifest.model} {manifest.dtype} {model.arch}",
        candidate=Factory(target=f"{__name__}:decoder", arguments=compiled),
        reference=Factory(target=f"{__name__}:oracle", arguments=(manifest.model, *weights)),
        inputs=Factory(target=f"{__name__}:prompts", arguments=(model.graph.vocab, min(PROMPT_TOKENS, context))),
    )


def decoder(
    model: str, arch: str, target: str, dtype: str, group_size: int, kv_dtype: str, context: int, tokens: int
) -> Callable[[Tensor], Tensor]:
    """The compiled model as a function: ids [T] to float32 logits [rows, vocab], behind each of the last tokens."""
    compiled = compile_model(
        model,
        arch=arch,
        target=None if target == arch else target.removesuffix("-on-host"),
        dtype=dtype,
        group_size=group_size,
        kv_dtype=kv_dtype,
        max_context=context,
        tokens_per_pass=tokens,
        progress=False,
    )
    session = compiled.session

    def decode(ids: Tensor) -> Tensor:
        prompt: list[int] = ids.tolist()
        first = _first(len(prompt))
        session.prefill(prompt[:first], new_tokens=1 + len(prompt) - first)
        rows = [session.logits()]
        for token in prompt[first:]:
            session.force(token)
            list(session.decode(1))
            rows.append(session.logits())
        return torch.stack(rows).to(ids.device)

    return decode


class Oracle(nn.Module):
    """HuggingFace on the same ids: in bf16; in float64 once this module is cast to it."""

    precision: Tensor

    def __init__(self, model: Any) -> None:
        super().__init__()
        # What a judge's cast reaches. The models hang elsewhere: they are as large as they are, and never change.
        self.register_buffer("precision", torch.zeros((), dtype=torch.float32))
        self._float32 = [model.requires_grad_(requires_grad=False)]
        self._cast: dict[tuple[torch.dtype, torch.device], Any] = {}

    def forward(self, ids: Tensor) -> Tensor:
        """Ids [T] to logits [rows, vocab], float32 or float64."""
        exact = self.precision.dtype == torch.float64
        dtype, device = torch.float64 if exact else torch.bfloat16, ids.device
        if (dtype, device) not in self._cast:
            copied = copy.deepcopy(self._float32[0])  # a cast is in place
            self._cast[dtype, device] = copied.to(device=device, dtype=dtype)
        logits: Tensor = self._cast[dtype, device](ids[None]).logits[0, _first(len(ids)) - 1 :]
        return logits.to(torch.float64 if exact else torch.float32)


def oracle(model: str, dtype: str, group_size: int) -> Oracle:
    """HuggingFace with the checkpoint's weights as amk packs them."""
    checkpoint = resolve(model)
    quantization = Quantization(group=group_size) if dtype == "w8a16" else None
    return Oracle(float32_model(checkpoint.config, checkpoint.load, quantization=quantization))


def prompts(vocab: int, length: int) -> Callable[[int], tuple[Tensor]]:
    """A maker of token ids [length], int64."""

    def make_inputs(seed: int) -> tuple[Tensor]:
        source = torch.Generator().manual_seed(seed)
        return (torch.randint(0, vocab, (length,), generator=source),)

    return make_inputs


def _first(length: int) -> int:
    """Tokens of an input that its prompt has: all but those that are decoded, and one at least."""
    return max(1, length - DECODED)
