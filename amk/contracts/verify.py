"""The kernel verifier: judge any kernel by its reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import torch

from amk.contracts.gates import Gate
from amk.contracts.gates import gates as all_gates
from amk.contracts.hearing import AS_MADE, Options, hear
from amk.contracts.pickling import pickled
from amk.contracts.sources import KernelPair, Source
from amk.contracts.verdicts import Judgement
from amk.contracts.wire import DTYPES
from amk.errors import BadOptionError

__all__ = ["AS_MADE", "Options", "check_options", "judge_kernel", "verify"]

DEVICES: Final = ("cpu", "cuda")


def verify(
    candidate: Callable[..., object] | Source,
    reference: Callable[..., object] | Source,
    make_inputs: Callable[..., object] | Source,
    *,
    device: str | None = None,
    dtype: torch.dtype | None = None,
    seed: int = 0,
    gates: Sequence[str] | None = None,
    timeout_s: float = 10.0,
    memory_bytes: int = 8 << 30,
    budget_s: float = 120.0,
    name: str | None = None,
) -> Judgement:
    """Judge a kernel by its reference, each in a process of its own.

    Parameters
    ----------
    candidate, reference
        Callables that take the same arguments: functions, modules, or classes of modules (built without arguments,
        under one seed, and with the reference's values where names and shapes of their state agree).
    make_inputs
        Returns the arguments as a list or tuple; called with a seed if it takes one, and under one in any case.
    device
        ``cpu`` or ``cuda``; None for the one that this machine has.
    dtype
        What modules and floating inputs become; None leaves them.
    gates
        Ids of those to run, ``["G01", "G07"]``; None for all.
    timeout_s
        Of one call.
    memory_bytes
        That a call may take.
    budget_s
        For all gates together.
    name
        In the judgement; None for the candidate's own.

    Raises
    ------
    UnpicklableError
        A callable cannot be sent to another process.
    BadOptionError
        There is no such device, dtype or gate.
    ForkServerError
        No process could be started.
    """
    found = device or ("cuda" if torch.cuda.is_available() else "cpu")
    pair = KernelPair(
        name=name or getattr(candidate, "__qualname__", None) or type(candidate).__name__,
        candidate=pickled(candidate, "the candidate"),
        reference=pickled(reference, "the reference"),
        inputs=pickled(make_inputs, "make_inputs"),
    )
    options = Options(
        device=found,
        dtype=AS_MADE if dtype is None else str(dtype).removeprefix("torch."),
        seed=seed,
        gates=tuple(gates or ()),
        timeout_s=timeout_s,
        memory_bytes=memory_bytes,
        budget_s=budget_s,
    )
    return judge_kernel(pair, options)


def judge_kernel(kernel: KernelPair, options: Options, gates: Sequence[Gate] | None = None) -> Judgement:
    """Judge one kernel.

    Parameters
    ----------
    gates
        What to run, in order; None for those that ``options`` names.

    Raises
    ------
    BadOptionError
        There is no such device, dtype or gate.
    ForkServerError
        No process could be started.
    """
    check_options(options)
    return hear(kernel, options, _chosen(options.gates) if gates is None else tuple(gates))


def check_options(options: Options) -> None:
    """Raise for options with which nothing could be judged.

    Raises
    ------
    BadOptionError
        There is no such device, dtype or gate.
    """
    if options.device not in DEVICES:
        raise BadOptionError(option="device", value=options.device, why="unknown", fix="use cpu or cuda")
    if options.dtype != AS_MADE and options.dtype not in DTYPES:
        fix = f"use a dtype of torch's, as in bfloat16, or {AS_MADE!r}"
        raise BadOptionError(option="dtype", value=options.dtype, why="torch has none of that name", fix=fix)
    _chosen(options.gates)


def _chosen(ids: Sequence[str]) -> tuple[Gate, ...]:
    known = {gate.id: gate for gate in all_gates()}
    for name in ids:
        if name not in known:
            raise BadOptionError(option="gates", value=name, why="there is no such gate", fix=f"use {', '.join(known)}")
    return tuple(gate for name, gate in known.items() if not ids or name in ids)
