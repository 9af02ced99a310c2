"""How one kernel is judged: load both sides, agree on inputs, run the gates."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Final

import msgspec
import torch

from amk.contracts.errors import ForkServerError, GateDefectError
from amk.contracts.gates import Gate
from amk.contracts.outcomes import Answer, Ask, Died, Outcome, Raised, Value
from amk.contracts.sources import KernelPair
from amk.contracts.subject import Limits, Process, Ready
from amk.contracts.trial import Trial, tensors_of
from amk.contracts.verdicts import STANDARD, Finding, Judgement, Status, status_of
from amk.contracts.wire import DTYPES
from amk.contracts.working import cut, working_cuts
from amk.ir.record import Record

logger = logging.getLogger(__name__)

AS_MADE: Final = "as made"

ALONE: Final = ("G00",)
ALSO: Final = ("G07",)
"""Gates that are given inputs of the size that they were made in, alone or also, where others work at a smaller one."""

ABSENT: Final = {
    "no compiler": (
        "No module named 'triton'",
        "CUDA_HOME environment variable is not set",
        "Ninja is required to load C++ extensions",
        "No such file or directory: 'nvcc'",
    ),
    "no device": (
        "Torch not compiled with CUDA enabled",
        "No CUDA GPUs are available",
        "Found no NVIDIA driver",
        "0 active drivers",
    ),
}
"""What a machine may lack, and how that is said by what needs it."""


class Options(Record):
    """How a kernel is judged.

    Attributes
    ----------
    device
        ``cpu`` or ``cuda``.
    dtype
        Of modules and floating inputs: ``bfloat16``; or ``as made``.
    seed
        All that is random comes from it.
    gates
        Ids of those to run; none for all.
    timeout_s, first_timeout_s, load_timeout_s, memory_bytes
        Limits of each of the two processes, as of ``amk.contracts.subject.Limits``.
    budget_s
        For all gates together: past its share a gate starts no further case.
    """

    device: str = "cpu"
    dtype: str = AS_MADE
    seed: int = 0
    gates: tuple[str, ...] = ()
    timeout_s: float = 10.0
    first_timeout_s: float = 60.0
    load_timeout_s: float = 300.0
    memory_bytes: int = 8 << 30
    budget_s: float = 120.0


class _EndedEarly(Exception):  # noqa: N818 - not a failure of amk: it is the judgement
    def __init__(self, status: Status, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


def hear(kernel: KernelPair, options: Options, gates: Sequence[Gate]) -> Judgement:
    """Judge ``kernel`` by ``gates``, in their order.

    Raises
    ------
    ForkServerError
        No process could be started.
    """
    start = monotonic()
    dtype = None if options.dtype == AS_MADE else DTYPES[options.dtype]
    findings: list[Finding] = []
    defects: list[str] = []
    try:
        with _opened(kernel, options, dtype) as (trial, whole):
            dtype = trial.dtype
            for at, gate in enumerate(gates):
                share = (start + options.budget_s - monotonic()) / (len(gates) - at)
                trial.deadline = whole.deadline = monotonic() + max(0.0, share)
                try:
                    findings.append(_found(gate, trial, whole))
                except GateDefectError as error:
                    logger.exception("gate %s has a defect", gate.id)
                    defects.append(str(error))
        status, why = _outcome(findings, defects)
    except _EndedEarly as end:
        status, why = end.status, end.why
    return Judgement(
        kernel=kernel.name,
        status=status,
        why=why,
        findings=tuple(findings),
        device=options.device,
        dtype=options.dtype if dtype is None else str(dtype).removeprefix("torch."),
        seed=options.seed,
        seconds=monotonic() - start,
    )


def _outcome(findings: Sequence[Finding], defects: Sequence[str]) -> tuple[Status, str]:
    """(status, why). What no gate has compared anything for does not conform by that."""
    status = status_of(tuple(findings))
    deciding = [finding for finding in findings if finding.gate != STANDARD]
    if status != "conforms":
        return status, "; ".join(defects)
    if defects:
        return "not judged", "; ".join(defects)
    if deciding and all(finding.verdict == "not applicable" for finding in deciding):
        return "not judged", "no gate applies"
    return status, ""


def _found(gate: Gate, trial: Trial, whole: Trial) -> Finding:
    """What a gate finds, at the working size and at the whole one as it is due.

    Raises
    ------
    GateDefectError
        It raised, or found what cannot be.
    """
    finding = _judged(gate, whole if gate.id in ALONE else trial)
    if gate.id in ALSO and whole is not trial and finding.verdict == "pass":
        larger = _judged(gate, whole)
        if larger.verdict in {"violation", "reject"}:
            return larger
        figures = {name: max(value, finding.figures.get(name, value)) for name, value in larger.figures.items()}
        return msgspec.structs.replace(
            finding, cases=finding.cases + larger.cases, figures={**finding.figures, **figures}
        )
    return finding


def _judged(gate: Gate, trial: Trial) -> Finding:
    try:
        finding = gate.judge(trial)
    except (_EndedEarly, ForkServerError):
        raise
    except Exception as error:
        raise GateDefectError(gate=gate.id, why=f"{type(error).__name__}: {error}") from error
    if finding.gate != gate.id:
        raise GateDefectError(gate=gate.id, why=f"its finding is {finding.gate}'s")
    if finding.verdict == "pass" and not finding.cases:
        raise GateDefectError(gate=gate.id, why="it passes without a comparison")
    return finding


@contextlib.contextmanager
def _opened(kernel: KernelPair, options: Options, dtype: torch.dtype | None) -> Iterator[tuple[Trial, Trial]]:
    """(a trial at the working size, one at the size that inputs are made in).

    Raises
    ------
    _EndedEarly
        One of the two does not load, or does not live through its own inputs.
    """
    limits = Limits(
        timeout_s=options.timeout_s,
        first_timeout_s=max(options.timeout_s, options.first_timeout_s),
        load_timeout_s=options.load_timeout_s,
        memory_bytes=options.memory_bytes,
    )
    with contextlib.ExitStack() as stack:
        reference = Process(
            kernel.reference,
            device=options.device,
            dtype=dtype,
            seed=options.seed,
            limits=limits,
            init_name=kernel.init,
            inputs=kernel.inputs,
        )
        stack.callback(reference.close)
        theirs = reference.load()
        if not isinstance(theirs, Ready):
            raise _EndedEarly("not judged", f"the reference does not load: {theirs}")
        made = _made(reference, options.seed)
        expected = reference.ask(Ask(inputs=made))
        if not isinstance(expected, Answer):
            raise _EndedEarly("not judged", f"the reference does not take its own inputs: {expected}")
        candidate = Process(
            kernel.candidate,
            device=options.device,
            dtype=dtype,
            seed=options.seed,
            limits=limits,
            init=theirs.init,
            init_name=kernel.init,
            state={} if theirs.init is None else theirs.state,
        )
        stack.callback(candidate.close)
        mine = candidate.load()
        if not isinstance(mine, Ready):
            raise _failed("does not load", mine)
        answer = candidate.ask(Ask(inputs=made))
        if not isinstance(answer, Answer):
            raise _failed("does not take the inputs that it is made for", answer)
        weights = _weights(mine, theirs)
        whole = _trial(candidate, reference, options, made, (), weights)
        accepts = _Acceptance(whole, like_whole=_agree(expected, answer))
        cuts = working_cuts(made, accepts)
        yield (_trial(candidate, reference, options, cut(made, cuts), cuts, weights) if cuts else whole), whole


def _trial(
    candidate: Process,
    reference: Process,
    options: Options,
    nominal: tuple[Value, ...],
    cuts: Sequence[tuple[int, int, int]],
    weights: dict[str, torch.Tensor],
) -> Trial:
    floating = [tensor.dtype for tensor in tensors_of(nominal) if tensor.is_floating_point()]
    return Trial(
        candidate=candidate,
        reference=reference,
        device=options.device,
        dtype=floating[0] if floating else torch.get_default_dtype(),
        seed=options.seed,
        nominal=nominal,
        weights=weights,
        maker=lambda seed: _made(reference, seed, cuts),
    )


def _made(reference: Process, seed: int, cuts: Sequence[tuple[int, int, int]] = ()) -> tuple[Value, ...]:
    made = reference.make(seed, cuts)
    if isinstance(made, (Raised, Died)):
        raise _EndedEarly("not judged", f"no inputs could be made under seed {seed}: {made}")
    return made


def _failed(what: str, outcome: Outcome | Ready) -> _EndedEarly:
    """The kernel's failure; or what this machine lacks, if that is why."""
    for lack, signs in ABSENT.items():
        if any(sign in str(outcome) for sign in signs):
            return _EndedEarly("not judged", f"not applicable: {lack} ({outcome})")
    return _EndedEarly("failed", f"the kernel {what}: {outcome}")


def _weights(mine: Ready, theirs: Ready) -> dict[str, torch.Tensor]:
    """Parameters that both sides have under one name, with one shape and the same values."""
    return {
        name: theirs.state[name]
        for name in theirs.parameters
        if name in mine.parameters and _equal(mine.state.get(name), theirs.state.get(name))
    }


def _equal(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None:
        return False
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)


class _Acceptance:
    """Whether both sides take inputs of another size, and agree on them as well as they do on what was made."""

    def __init__(self, whole: Trial, *, like_whole: bool) -> None:
        self._whole = whole
        self._like_whole = like_whole
        self._died = False

    def __call__(self, inputs: tuple[Value, ...]) -> bool:
        if self._died:  # each death costs a start, each hang a time limit
            return False
        expected = self._whole.expected(inputs)
        answer = self._whole.candidate.ask(Ask(inputs=inputs)) if isinstance(expected, Answer) else expected
        self._died = isinstance(answer, Died)
        if not isinstance(expected, Answer) or not isinstance(answer, Answer):
            return False
        return _agree(expected, answer) or not self._like_whole


def _agree(expected: Answer, answer: Answer) -> bool:
    """The benchmarks' own test, at its coarsest."""
    if [value.shape for value in expected.values] != [value.shape for value in answer.values]:
        return False
    return all(
        torch.allclose(mine.to(theirs.dtype), theirs, rtol=1e-2, atol=1e-2, equal_nan=True)
        for mine, theirs in zip(answer.values, expected.values, strict=True)
    )
