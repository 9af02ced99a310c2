"""``amk audit``: judge kernels that others wrote, by the gates, and write a report."""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from amk.cli.audit_tables import print_audit, print_calibration
from amk.cli.failures import EXIT_INTERRUPTED
from amk.cli.options import Json
from amk.cli.output import ERR, OUT, print_json
from amk.errors import EXIT_FAILED, EXIT_UNKNOWN, BadOptionError
from amk.settings import write_atomically

if TYPE_CHECKING:
    from amk.contracts.audit import Audit, Step
    from amk.contracts.engines import EngineName
    from amk.contracts.verify import Options

JOBS_ON_A_GPU: Final = 2
"""By default: each judge has two processes with a context of the device's."""

PathArgument = Annotated[
    Path | None,
    typer.Argument(help="A .py file with Model and ModelNew, a folder of them, or .json or .jsonl records."),
]
Fields = Annotated[
    list[str] | None, typer.Option(metavar="ROLE=FIELD", help="Where records have reference, candidate, source, name.")
]


def audit(
    path: PathArgument = None,
    *,
    out: Annotated[Path, typer.Option(help="A folder for the report and the journal.")],
    device: Annotated[str | None, typer.Option(help="cpu or cuda. Default: what this machine has.")] = None,
    dtype: Annotated[str, typer.Option(help="Of modules and floating inputs, as in bfloat16.")] = "as made",
    gates: Annotated[str, typer.Option(help="Only these, as in G01,G07.")] = "",
    seed: Annotated[int, typer.Option(help="All that is random comes from it.")] = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Kernels at a time. Default: one a processor.")] = None,
    engine: Annotated[str, typer.Option(help="local, or ray: a Ray cluster.")] = "local",
    fresh: Annotated[bool, typer.Option("--fresh/--resume", help="Judge all anew, or go on with the journal.")] = False,
    field: Fields = None,
    reference: Annotated[Path | None, typer.Option(help="References: a folder with the same names, or a file.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first so many kernels.")] = None,
    timeout_s: Annotated[float, typer.Option(min=0.1, help="Of one call of a kernel.")] = 10.0,
    memory_gb: Annotated[float, typer.Option(min=0.1, help="That a kernel may take.")] = 8.0,
    budget_s: Annotated[float, typer.Option(min=1.0, help="For all gates of a kernel together.")] = 120.0,
    calibrate: Annotated[bool, typer.Option("--calibrate", help="Judge kernels that are right, for kappa.")] = False,
    as_json: Json = False,
) -> int:
    """Judge the kernels in PATH by twelve gates; exit 1 when one does not conform.

    Kernels run in processes of their own, under limits, and as this user: that
    guards against accidents, not against attacks (docs/verifier.md). An audit
    that was ended goes on when the same command is run again.
    """
    from amk.contracts.verify import Options

    options = Options(
        device=device or _device(),
        dtype=dtype,
        seed=seed,
        gates=tuple(name.strip() for name in gates.split(",") if name.strip()),
        timeout_s=timeout_s,
        memory_bytes=int(memory_gb * (1 << 30)),
        budget_s=budget_s,
    )
    _check(options)
    if jobs is None and options.device == "cuda":
        jobs = JOBS_ON_A_GPU
    if calibrate:
        return _calibrate(options.device, jobs, out, as_json=as_json)
    if path is None:
        raise BadOptionError(option="PATH", value="", why="it is missing", fix="pass a file or a folder of kernels")
    found = _run(
        path,
        options,
        out=out,
        jobs=jobs,
        engine=_engine(engine),
        fresh=fresh,
        fields=field or [],
        reference=reference,
        limit=limit,
    )
    if as_json:
        print_json(_as_json(found))
    else:
        print_audit(found)
    return _exit_code(found)


def _run(
    path: Path,
    options: Options,
    *,
    out: Path,
    jobs: int | None,
    engine: EngineName,
    fresh: bool,
    fields: list[str],
    reference: Path | None,
    limit: int | None,
) -> Audit:
    from amk.contracts.audit import Plan
    from amk.contracts.audit import audit as judge_all
    from amk.contracts.forms import read_works

    plan = Plan(
        works=read_works(path, fields=fields, reference=reference),
        source=path,
        options=options,
        out=out,
        limit=limit,
        jobs=jobs,
        engine=engine,
        fresh=fresh,
    )
    # Ray has a thread that writes to standard output, on which a program may read JSON.
    with contextlib.redirect_stdout(sys.stderr), _progress(plan.total) as note:
        return judge_all(plan, note=note)


def _calibrate(device: str, jobs: int | None, out: Path, *, as_json: bool) -> int:
    """Measure kappa on the kernels that are known to be right; exit 1 when what is granted is too little for one."""
    from amk.contracts.calibrate import calibrate

    with ERR.status("starting") as status:
        found = calibrate(device, jobs, status.update)
    file = out / "calibration.json"
    document = msgspec.json.format(msgspec.json.encode(found), indent=1)
    write_atomically(file, document + b"\n", fix="choose another folder for --out")
    if as_json:
        print_json(msgspec.to_builtins(found))
    else:
        print_calibration(found)
        OUT.print(f"written {file}")
    return EXIT_FAILED if any(kappa > found.granted for kappa in found.silent.values()) else 0


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[Step], None]]:
    """A bar on standard error, with how many kernels have which status."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    seen: Counter[str] = Counter()
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=ERR, transient=True) as progress:
        task = progress.add_task("judging", total=total)

        def note(step: Step) -> None:
            seen[step.judgement.status] += 1
            said = ", ".join(f"{count} {status}" for status, count in seen.most_common())
            progress.update(task, completed=step.done, description=said)

        yield note


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _check(options: Options) -> None:
    """Wrong options are one error here, instead of one of each kernel's."""
    import torch

    from amk.contracts.gates import gates
    from amk.contracts.verify import AS_MADE
    from amk.contracts.wire import DTYPES

    dtypes = (AS_MADE, *(name for name, dtype in DTYPES.items() if dtype.is_floating_point))
    given = [("--device", options.device, ("cpu", "cuda")), ("--dtype", options.dtype, dtypes)]
    known = tuple(gate.id for gate in gates())
    for option, value, allowed in [*given, *(("--gates", name, known) for name in options.gates)]:
        if value not in allowed:
            fix = f"use one of: {', '.join(allowed)}"
            raise BadOptionError(option=option, value=value, why="there is none of that name", fix=fix)
    if options.device == "cuda" and not torch.cuda.is_available():
        raise BadOptionError(option="--device", value="cuda", why="torch finds none here", fix="use --device cpu")


def _engine(name: str) -> EngineName:
    known: dict[str, EngineName] = {"local": "local", "ray": "ray"}
    if name in known:
        return known[name]
    raise BadOptionError(option="--engine", value=name, why="there is none of that name", fix="use local or ray")


def _as_json(found: Audit) -> dict[str, object]:
    return {
        "verdict": {0: "conform", EXIT_FAILED: "fail", EXIT_UNKNOWN: "unknown"}.get(_exit_code(found), "interrupted"),
        "complete": found.complete,
        "resumed": found.resumed,
        "report": str(found.out / "report.json"),
        "statistics": msgspec.to_builtins(found.statistics),
    }


def _exit_code(found: Audit) -> int:
    statuses = found.statistics.statuses
    if not found.complete:
        return EXIT_INTERRUPTED
    if statuses["violation"] + statuses["broken"] + statuses["failed"]:
        return EXIT_FAILED
    return EXIT_UNKNOWN if statuses["not judged"] else 0
