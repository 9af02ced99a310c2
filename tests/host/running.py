"""A kernel on this processor, from any source: what the tests of the host build share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from amk.codegen.emit import CudaSource, emit
from amk.codegen.host import Watch
from amk.pipeline import CompiledModel
from amk.runtime.host import HostChip
from amk.runtime.kernel import host_kernel
from amk.runtime.launch import KernelBackend
from amk.runtime.session import Session
from amk.validator import ValidatedSchedule

WATCHDOG_S = 60.0


def edited(source: CudaSource, path: str, old: str, new: str) -> CudaSource:
    """``source`` with one passage of one header changed."""
    text = source.headers[path]
    assert text.count(old) == 1, f"{path}: {text.count(old)} times {old!r}"
    return replace(source, headers={**source.headers, path: text.replace(old, new)})


@dataclass(frozen=True)
class Forced:
    """Past the validator, by a test's own hand."""

    schedule: object


@contextmanager
def open_host(
    model: CompiledModel,
    source: CudaSource | None = None,
    *,
    watch: Watch = "nothing",
    seed: int = 0,
    log: Path | None = None,
    validated: ValidatedSchedule | Forced | None = None,
    watchdog_s: float = WATCHDOG_S,
) -> Iterator[Session]:
    """A session of ``model``, compiled for arch host, on a kernel built from ``source`` (its own by default)."""
    proved = validated or model._validated
    kernel = host_kernel(source or emit(proved), watch)
    workers = len(proved.schedule.queues)
    chip = HostChip(kernel.program, kernel.config, workers=workers, seed=seed, log=log)
    load, rope = model._weights()
    backend = KernelBackend(proved, kernel.config, chip, load=load, rope=rope, watchdog_s=watchdog_s)
    try:
        yield Session(backend, vocab=model.graph.vocab, context_limit=model.graph.context_limit)
    finally:
        backend.close()


def decoded(session: Session, prompt: list[int], tokens: int) -> tuple[list[int], torch.Tensor]:
    """``tokens`` new tokens, all but the first in one launch, and the logits behind the last."""
    made = [session.prefill(prompt, new_tokens=tokens), *session.decode(tokens - 1)]
    return made, session.logits()
