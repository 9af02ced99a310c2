"""Calibration: the kappa at which the error-ratio gates raise no alarm at kernels that are known to be right.

The kernels are those of ``amk.contracts.conforming``, in several dtypes and sizes, judged as any others are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import resources
from typing import Final

import msgspec
import torch

from amk.contracts.engines import Court, Task, engine_of
from amk.contracts.gates.error_ratio import INFINITE
from amk.contracts.gates.kappa import KAPPA
from amk.contracts.sources import KernelPair, kernelbench_pair
from amk.contracts.verdicts import Finding, Judgement
from amk.contracts.verify import Options
from amk.ir.record import Record

DTYPES: Final = ("float32", "bfloat16", "float16")
SCALES: Final = (1, 4, 16)
"""Factors of the kernels' sizes."""

GATES: Final = ("G07", "G12")
SWEEP: Final = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0)

JUDGE: Final = "amk.contracts.verify:judge_kernel"
LIMIT_S: Final = 600.0


class Row(Record):
    """What one gate needs to pass one kernel.

    Attributes
    ----------
    kappa
        The least at which it raises no alarm; None where it does not apply.
    regimes
        The same for each regime of inputs.
    why
        Where it does not apply, the reason.
    """

    kernel: str
    dtype: str
    scale: int
    gate: str
    kappa: float | None
    regimes: dict[str, float] = msgspec.field(default_factory=dict)
    why: str = ""


class Alarms(Record):
    """How many kernels a gate would accuse wrongly at one kappa."""

    gate: str
    kappa: float
    alarms: int
    kernels: int


class Calibration(Record):
    """What was measured.

    Attributes
    ----------
    granted
        The kappa that the gates use.
    silent
        By gate, the least kappa without an alarm: the largest that any kernel needs.
    """

    device: str
    torch: str
    granted: float
    silent: dict[str, float]
    alarms: tuple[Alarms, ...]
    rows: tuple[Row, ...]

    def silent_of(self, gate: str, dtype: str) -> float | None:
        """The least kappa without an alarm of ``gate`` in one dtype; None where it was not measured."""
        return max(
            (row.kappa for row in self.rows if (row.gate, row.dtype) == (gate, dtype) and row.kappa), default=None
        )


def calibrate(
    device: str,
    jobs: int | None = None,
    note: Callable[[str], None] = lambda said: None,
    *,
    dtypes: Sequence[str] = DTYPES,
    scales: Sequence[int] = SCALES,
) -> Calibration:
    """Judge the conforming kernels by the gates that have a threshold.

    Parameters
    ----------
    device
        ``cpu`` or ``cuda``.
    jobs
        Kernels judged at a time; None for one a processor.
    note
        Called with a line for each kernel when it has been judged.

    Raises
    ------
    ForkServerError
        No process could be started.
    """
    rows: list[Row] = []
    for dtype in dtypes:
        options = Options(device=device, dtype=dtype, gates=GATES)
        engine = engine_of("local", Court(judge=JUDGE, options=options, limit_s=LIMIT_S), jobs=jobs)
        with contextlib.closing(engine.judge(_tasks(scales))) as judgements:
            for task, judgement in judgements:
                found = _rows(judgement, dtype, int(task.key))
                rows += found
                note(_line(found))
    return summarise(rows, device=device)


def summarise(rows: Iterable[Row], *, device: str) -> Calibration:
    """What rows, in whatever order they came, amount to."""
    ordered = tuple(sorted(rows, key=lambda row: (row.kernel, row.dtype, row.scale, row.gate)))
    needed = {gate: [row.kappa for row in ordered if row.gate == gate and row.kappa is not None] for gate in GATES}
    return Calibration(
        device=device,
        torch=str(torch.__version__),
        granted=KAPPA,
        silent={gate: max(kappas) for gate, kappas in needed.items() if kappas},
        alarms=tuple(
            Alarms(gate=gate, kappa=kappa, alarms=sum(value > kappa for value in kappas), kernels=len(kappas))
            for gate, kappas in needed.items()
            for kappa in SWEEP
        ),
        rows=ordered,
    )


def conforming() -> Iterator[tuple[str, str]]:
    """(name, text) of each kernel, by name."""
    files = resources.files("amk.contracts.conforming")
    for file in sorted(files.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".py") and file.name != "__init__.py":
            yield file.name.removesuffix(".py"), file.read_text(encoding="utf-8")


def scaled_pair(name: str, text: str, scale: int) -> KernelPair:
    """The kernel with ``scale`` times its sizes: its module reads ``SCALE`` when it makes its inputs."""
    sized = f"{text}\n\nSCALE = {scale}\n"
    return kernelbench_pair(name, reference=sized, candidate=sized)


def _tasks(scales: Sequence[int]) -> Iterator[Task]:
    for name, text in conforming():
        for scale in scales:
            yield Task(key=str(scale), kernel=scaled_pair(name, text, scale))


def _rows(judgement: Judgement, dtype: str, scale: int) -> list[Row]:
    def row(gate: str, finding: Finding | None) -> Row:
        figures = {} if finding is None else finding.figures
        regimes = {name: value for name, value in figures.items() if name not in {"kappa", "central difference"}}
        kappa = figures.get("kappa")
        if finding is not None and finding.verdict not in {"pass", "not applicable"} and kappa is None:
            kappa = INFINITE
        why = "" if kappa is not None else (judgement.why if finding is None else finding.why)
        return Row(kernel=judgement.kernel, dtype=dtype, scale=scale, gate=gate, kappa=kappa, regimes=regimes, why=why)

    return [row(gate, judgement.finding(gate)) for gate in GATES]


def _line(rows: Sequence[Row]) -> str:
    needs = ", ".join(f"{row.gate} needs {row.kappa:.2g}" for row in rows if row.kappa is not None)
    return f"{rows[0].kernel}, {rows[0].dtype}, size x{rows[0].scale}: {needs or rows[0].why}"
