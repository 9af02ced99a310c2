"""All arms on the same weights, taking turns in one process; raw samples are kept, and nothing is timed unproved.

The parity verdict beside amk's figures is of the very binary that was timed.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import torch

import amk
from amk.contracts.decode import contract_for, decode_parity
from amk.errors import AmkError
from amk.ir.buffers import ITEM_BYTES
from amk.ir.record import Record
from amk.measure.arms import AmkArm, Arm, torch_arm
from amk.measure.limits import Limits

if TYPE_CHECKING:
    from amk.runtime.model import CompiledModel

ROUNDS: Final = 5
TOKENS: Final = 64
PARITY_TOKENS: Final = 16


class Row(Record):
    """One arm at one context.

    Attributes
    ----------
    us_per_token
        Every sample: wall clock of ``tokens`` tokens over their number.
    launches
        Of one sample, where they are counted.
    failure
        Why it has no samples; empty if it has.
    """

    arm: str
    context: int
    tokens: int
    us_per_token: tuple[float, ...]
    launches: int
    failure: str

    @property
    def median(self) -> float:
        """Of the samples."""
        ordered = sorted(self.us_per_token)
        return ordered[len(ordered) // 2]


class Parity(Record):
    """Of the binary that was timed, against HuggingFace float32."""

    verdict: str
    tokens: int
    ties: int
    logit_range_max: float


class BenchResult(Record):
    """What was measured, on what.

    Attributes
    ----------
    weight_bytes
        That a token streams: all weights but an untied embedding table.
    kv_bytes_per_position
        That a token streams for each position before it.
    machine
        What ran it.
    code
        Digest of the kernel's machine code.
    """

    model: str
    dtype: str
    kv_dtype: str
    weight_bytes: int
    kv_bytes_per_position: int
    code: str
    parity: Parity
    rows: tuple[Row, ...]
    limits: Limits | None
    machine: dict[str, str]

    def write(self, path: Path) -> None:
        """As JSON, in one order."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self, order="sorted"), indent=1) + b"\n")


def bench(
    model: CompiledModel,
    *,
    contexts: Sequence[int],
    against: Sequence[str] = (),
    rounds: int = ROUNDS,
    tokens: int = TOKENS,
    limits: Limits | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> BenchResult:
    """Time ``model`` and the arms ``against`` at each context, taking turns ``rounds`` times.

    Raises
    ------
    ContextOverflowError, DeviceError
    """
    note("comparing with HuggingFace float32")
    probe = _prompt(37, model.graph.vocab)
    report = decode_parity(model, contract_for(model.checkpoint.name), [("probe", probe)], tokens=PARITY_TOKENS)
    arms: list[Arm] = [AmkArm(model)]
    failures: dict[str, str] = {}
    if against:
        note("loading the model in PyTorch")
        hf = _torch_model(model)
        arms += [torch_arm(name, hf, context=max(contexts) + tokens + 8) for name in against]
    rows = []
    for context in contexts:
        samples: dict[str, list[float]] = {arm.name: [] for arm in arms}
        launches: dict[str, int] = {}
        for turn in range(rounds):
            for arm in arms:
                if arm.name in failures:
                    continue
                note(f"context {context}, turn {turn + 1} of {rounds}: {arm.name}")
                try:
                    samples[arm.name].append(_sample(arm, _prompt(context, model.graph.vocab), tokens))
                    launches[arm.name] = arm.launches
                except AmkError:
                    raise
                except Exception as error:  # noqa: BLE001 - whatever PyTorch cannot do is a row that says so
                    failures[arm.name] = f"{type(error).__name__}: {error}".splitlines()[0]
        rows += [
            Row(
                arm=arm.name,
                context=context,
                tokens=tokens,
                us_per_token=tuple(samples[arm.name]),
                launches=launches.get(arm.name, 0),
                failure=failures.get(arm.name, ""),
            )
            for arm in arms
        ]
    schedule = model.schedule
    return BenchResult(
        model=model.checkpoint.name,
        dtype=model.manifest.dtype,
        kv_dtype=model.manifest.kv_dtype,
        weight_bytes=_streamed(model, "weight"),
        kv_bytes_per_position=_streamed(model, "kv") // schedule.max_context,
        code=model.manifest.kernel.code if model.manifest.kernel else "",
        parity=Parity(
            verdict=report.verdict,
            tokens=report.tokens,
            ties=report.ties,
            logit_range_max=report.logit_range_max,
        ),
        rows=tuple(rows),
        limits=limits,
        machine=_machine(model),
    )


def _prompt(length: int, vocab: int) -> list[int]:
    return [(7 * at * at + 3) % min(vocab, 1000) for at in range(length)]


def _sample(arm: Arm, prompt: list[int], tokens: int) -> float:
    arm.open(prompt, tokens)
    _synchronise()
    began = time.perf_counter()
    arm.decode(tokens)
    _synchronise()
    return (time.perf_counter() - began) / tokens * 1e6


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _torch_model(model: CompiledModel) -> Any:
    """The checkpoint in its HuggingFace class, in bf16, where amk runs it."""
    from amk.frontend.oracle import float32_model

    device = "cuda" if model.arch.startswith("sm_") else "cpu"
    found = float32_model(model.checkpoint.config, model.checkpoint.load).to(torch.bfloat16).to(device)
    found.set_attn_implementation("sdpa")
    return found


def _streamed(model: CompiledModel, kind: str) -> int:
    """Bytes of the buffers of a kind that tasks stream."""
    schedule = model.schedule
    names = {stream.region.buffer for task in schedule.tasks for stream in task.streams}
    total = 0
    for name in names:
        buffer = schedule.buffer[name]
        if buffer.kind == kind:
            size = ITEM_BYTES[buffer.dtype]
            for extent in buffer.shape:
                size *= extent
            total += size
    return total


def _machine(model: CompiledModel) -> dict[str, str]:
    found = {
        "amk": amk.__version__,
        "target": model.schedule.target.name,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "processor": platform.machine(),
    }
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
        found["cuda"] = str(torch.version.cuda)
    return found
