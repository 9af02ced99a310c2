"""All arms on the same weights, taking turns in one process; raw samples are kept, and nothing is timed unproved.

The parity verdict beside amk's figures is of the very binary that was timed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch
from msgspec.structs import replace

from amk.contracts.decode import contract_for, decode_parity
from amk.errors import AmkError
from amk.measure.arms import AmkArm, Arm, synchronise, torch_arm
from amk.measure.machine import machine
from amk.measure.result import AMK, LEFT_OUT, BenchResult, Limits, Parity, Row

if TYPE_CHECKING:
    from amk.ir.buffers import Buffer
    from amk.runtime.model import CompiledModel

ROUNDS: Final = 5
TOKENS: Final = 64
PARITY_TOKENS: Final = 16
_BF16_BYTES: Final = 2


def bench(
    model: CompiledModel,
    *,
    contexts: Sequence[int],
    against: Sequence[str] = (),
    rounds: int = ROUNDS,
    tokens: int = TOKENS,
    budget_s: float = math.inf,
    limits: Limits | None = None,
    note: Callable[[str], None] = lambda _: None,
    keep: Callable[[BenchResult], None] = lambda _: None,
) -> BenchResult:
    """Time ``model`` and the arms ``against`` at each context, taking turns ``rounds`` times.

    Parameters
    ----------
    budget_s
        Seconds after which no sample is begun: rows that have none by then say so.
    note
        Called with what is done next.
    keep
        Called with the result so far, whenever a context is done.

    Raises
    ------
    ContextOverflowError, DeviceError
    """
    ends = time.monotonic() + budget_s
    note("comparing with HuggingFace float32")
    weights = sum(math.prod(buffer.shape) for buffer in _streamed(model, "weight"))
    result = BenchResult(
        model=model.checkpoint.name,
        weights=model.manifest.weights_digest,
        dtype=model.manifest.dtype,
        kv_dtype=model.manifest.kv_dtype,
        weight_bytes=sum(buffer.bytes for buffer in _streamed(model, "weight")),
        code=model.manifest.kernel.code if model.manifest.kernel else "",
        parity=_parity(model),
        rounds=rounds,
        rows=(),
        limits=limits,
        machine=machine(model.schedule.target),
    )
    turns = _Turns(
        names=(AMK, *against),
        arms={AMK: AmkArm(model)},
        rounds=rounds,
        tokens=tokens,
        ends=ends,
        note=note,
        torch_weight_bytes=_BF16_BYTES * weights if model.quantization else 0,
    )
    if against and not turns.over():
        note("loading the model in PyTorch")
        hf = _torch_model(model)
        turns.arms.update({name: torch_arm(name, hf) for name in against})
    cached = sum(math.prod(buffer.shape) for buffer in _streamed(model, "kv")) // model.schedule.max_context
    for context in contexts:
        rows = turns.at(_prompt(context, model.graph.vocab), kv_values=context * cached)
        result = replace(result, rows=(*result.rows, *rows))
        keep(result)
    return result


@dataclass(slots=True, kw_only=True)
class _Turns:
    """Arms that take turns at one context after another; one that has failed is asked no more.

    ``names`` are those that were asked for, ``arms`` those that could be made; ``torch_weight_bytes`` is what PyTorch's
    stream, where that is not what amk does.
    """

    names: Sequence[str]
    arms: dict[str, Arm]
    rounds: int
    tokens: int
    ends: float
    note: Callable[[str], None]
    torch_weight_bytes: int
    failures: dict[str, str] = field(default_factory=dict)

    def over(self) -> bool:
        """Whether no more samples are to be begun."""
        return time.monotonic() >= self.ends

    def at(self, prompt: list[int], *, kv_values: int) -> list[Row]:
        """A row for each name, behind ``prompt``, whose keys and values are so many numbers."""
        samples: dict[str, list[tuple[float, float]]] = {name: [] for name in self.names}
        for turn in range(self.rounds):
            for name, arm in self.arms.items():
                if name in self.failures or self.over():
                    continue
                self.note(f"context {len(prompt)}, turn {turn + 1} of {self.rounds}: {name}")
                try:
                    samples[name].append(_sample(arm, prompt, self.tokens))
                except AmkError:
                    raise
                except Exception as error:  # noqa: BLE001 - whatever PyTorch cannot do is a row that says so
                    self.failures[name] = f"{type(error).__name__}: {error}".splitlines()[0]
        return [self._row(name, samples[name], context=len(prompt), kv_values=kv_values) for name in self.names]

    def _row(self, name: str, samples: list[tuple[float, float]], *, context: int, kv_values: int) -> Row:
        arm = self.arms.get(name)
        return Row(
            arm=name,
            context=context,
            tokens=self.tokens,
            kv_bytes=kv_values * arm.kv_item_bytes if arm else 0,
            us_per_token=tuple(us for us, _ in samples),
            prompt_ms=tuple(ms for _, ms in samples),
            weight_bytes=0 if name == AMK else self.torch_weight_bytes,
            launches=arm.launches if arm and samples else 0,
            failure=self.failures.get(name) or ("" if len(samples) == self.rounds else LEFT_OUT),
        )


def _parity(model: CompiledModel) -> Parity:
    probe = _prompt(37, model.graph.vocab)
    report = decode_parity(model, contract_for(model.checkpoint.name), [("probe", probe)], tokens=PARITY_TOKENS)
    return Parity(
        verdict=report.verdict,
        failure=report.failure,
        tokens=report.tokens,
        ties=report.ties,
        logit_range_max=report.logit_range_max if math.isfinite(report.logit_range_max) else None,
        logit_range_bound=report.logit_range_bound,
    )


def _prompt(length: int, vocab: int) -> list[int]:
    return [(7 * at * at + 3) % min(vocab, 1000) for at in range(length)]


def _sample(arm: Arm, prompt: list[int], tokens: int) -> tuple[float, float]:
    """Microseconds a token, and milliseconds of the prompt."""
    prompt_s = arm.open(prompt, tokens)
    synchronise()
    began = time.perf_counter()
    arm.decode(tokens)
    synchronise()
    return (time.perf_counter() - began) / tokens * 1e6, prompt_s * 1e3


def _torch_model(model: CompiledModel) -> Any:
    """The checkpoint in its HuggingFace class, in bf16, where amk runs it."""
    from amk.frontend.oracle import filled_model

    return filled_model(
        model.checkpoint.config,
        model.checkpoint.load,
        dtype=torch.bfloat16,
        attention="sdpa",
        device="cuda" if model.arch.startswith("sm_") else "cpu",
    )


def _streamed(model: CompiledModel, kind: str) -> list[Buffer]:
    """Buffers of a kind that tasks stream."""
    schedule = model.schedule
    names = {stream.region.buffer for task in schedule.tasks for stream in task.streams}
    return [schedule.buffer[name] for name in names if schedule.buffer[name].kind == kind]
