"""The kernel on this processor under many orders of threads, copies and workers: the same bits under each."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from amk.ir.record import Record

if TYPE_CHECKING:
    from amk.runtime.model import CompiledModel


class SeedRun(Record):
    """One seed's run.

    Attributes
    ----------
    seed
        0 leaves nothing to chance; the others are compared with it.
    differs
        What is not as under seed 0; empty if nothing.
    seconds
        Wall clock of prompt and tokens.
    """

    seed: int
    differs: str
    seconds: float


def prompt_of(vocab: int, *, length: int = 11) -> list[int]:
    """Token ids without a tokenizer: with 8 tokens a pass, one full pass and one of what is left over."""
    return [(7 * i * i + 3) % vocab for i in range(length)]


def fuzz(model: CompiledModel, *, tokens: int, seeds: int) -> Iterator[SeedRun]:
    """Decode ``tokens`` tokens in one launch under seeds 0 to ``seeds``; each run as it ends.

    The logits of the last step and the tokens are compared bit for bit.
    """
    prompt = prompt_of(model.graph.vocab)
    expected: tuple[list[int], torch.Tensor] | None = None
    for seed in range(seeds + 1):
        session = model.open_session(seed=seed)
        try:
            start = time.perf_counter()
            made = [session.prefill(prompt, new_tokens=tokens), *session.decode(tokens - 1)]
            logits = session.logits().view(torch.int32)
        finally:
            session.backend.close()
        expected = expected or (made, logits)
        yield SeedRun(seed=seed, differs=_differs(made, logits, *expected), seconds=time.perf_counter() - start)


def _differs(made: list[int], logits: torch.Tensor, expected: list[int], expected_logits: torch.Tensor) -> str:
    for position, (ours, theirs) in enumerate(zip(made, expected, strict=True)):
        if ours != theirs:
            return f"token {position} is {ours}, not {theirs}"
    apart = (logits != expected_logits).nonzero().flatten().tolist()
    return f"{len(apart)} logits of the last step, the first of id {apart[0]}" if apart else ""
