"""Measures workloads, each in a process of its own: ``python -m bench.run [--workload NAME ...]``.

Every run writes ``<out>/<target>/<date>-<commit>-<workload>.json``, anew after each context, so what was measured stays
whatever becomes of the rest; a workload that fails is a file that says so. ``--twin`` tries the whole line on small
models, where there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace

import amk
from amk.frontend.aliases import shipped_config
from amk.frontend.checkpoint import resolve
from amk.frontend.digest import differing_fields
from amk.frontend.trace import hf_config
from amk.frontend.twin import shrink
from amk.measure.arms import TORCH_ARMS
from amk.measure.bench import ROUNDS, TOKENS, bench
from amk.measure.limits import limits
from amk.measure.result import LEFT_OUT, BenchResult
from amk.pipeline import DTYPES, choose_target
from amk.target import Target
from bench.runs import FORMAT, Run, read_run
from bench.workloads import WORKLOADS, Workload

ROOT = Path(__file__).resolve().parent.parent
SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How workloads are measured; None for what the workload itself says.

    ``arch`` and ``chip`` are what was asked for, ``target`` what that is on this machine.
    """

    checkpoint: Path | None
    out: Path
    rounds: int
    tokens: int
    contexts: list[int] | None
    against: list[str] | None
    dtype: str
    arch: str | None
    chip: str | None
    target: Target
    twin: bool


def main(words: Sequence[str] | None = None) -> int:
    """Measure what the command line asks for; 1 if a workload failed, or its tokens are not HuggingFace's."""
    asked = _parser().parse_args(words)
    options = Options(
        checkpoint=asked.checkpoint,
        out=asked.out,
        rounds=asked.rounds,
        tokens=asked.tokens,
        contexts=asked.contexts,
        against=asked.against,
        dtype=asked.dtype,
        arch=asked.arch,
        chip=asked.target,
        target=choose_target(arch=asked.arch, target=asked.target, device=None),
        twin=asked.twin,
    )
    commit = asked.commit or _commit()
    ends = time.monotonic() + (math.inf if asked.budget_seconds is None else asked.budget_seconds)
    failed = 0
    for name in asked.workload or WORKLOADS:
        left = ends - time.monotonic()
        run = _begun(WORKLOADS[name], options, commit, asked.budget_seconds, left)
        path = run.write(options.out)
        if left > 0:
            # A process of its own: what one leaves on the device, or breaks there, is no concern of the next.
            process = multiprocessing.get_context("spawn").Process(
                target=measure, args=(WORKLOADS[name], options, run, ends)
            )
            process.start()
            process.join()
            run = read_run(path) or run
            if process.exitcode:
                run = replace(run, failure=f"its process ended with {process.exitcode}")
                run.write(options.out)
        verdict = run.result.parity.verdict if run.result else "none"
        print(f"{run.workload}: {run.failure or 'done'}; parity: {verdict}; {path}", flush=True)
        failed += bool(run.failure) or verdict != "pass"
    return 1 if failed else 0


def measure(workload: Workload, options: Options, run: Run, ends: float) -> None:
    """Measure one workload until ``ends`` (monotonic), and write ``run`` with what was found, or why nothing was."""

    def keep(found: BenchResult) -> None:
        nonlocal run
        run = replace(run, result=found)
        run.write(options.out)

    try:
        _bench(workload, options, ends, keep)
        run = replace(run, failure="")
    except Exception as error:  # noqa: BLE001 - it is recorded by name, and the next workload is tried
        traceback.print_exc()
        run = replace(run, failure=f"{type(error).__name__}: {error}")
    run.write(options.out)


def _bench(workload: Workload, options: Options, ends: float, keep: Callable[[BenchResult], None]) -> None:
    began = time.monotonic()

    def note(text: str) -> None:
        print(f"{workload.name} {time.monotonic() - began:6.1f} s  {text}", flush=True)

    note("compiling")
    model = amk.compile(
        _checkpoint(workload, options),
        arch=options.arch,
        target=options.chip,
        dtype=options.dtype,
        kv_dtype=workload.kv_dtype,
        max_context=workload.max_context,
        progress=False,
    )
    note("measuring the machine")
    machine = None if model.arch == "cpu" else limits(model.schedule.target)
    bench(
        model,
        contexts=options.contexts or workload.contexts,
        against=workload.arms if options.against is None else options.against,
        rounds=options.rounds,
        tokens=options.tokens,
        budget_s=ends - time.monotonic(),
        limits=machine,
        note=note,
        keep=keep,
    )


def _checkpoint(workload: Workload, options: Options) -> object:
    """What to compile: the checkpoint that was given, or a model of the workload's shape with random weights."""
    config = json.loads(shipped_config(workload.model).read_text(encoding="utf-8"))
    given = _given(workload, options)
    if given is not None:
        fields = differing_fields(config, resolve(given).config)
        if fields:
            raise ValueError(f"{given} is no {workload.model}: its config differs in {', '.join(fields)}")
        return given
    return random_model(shrink(config) if options.twin else config)


def _given(workload: Workload, options: Options) -> Path | None:
    return options.checkpoint if workload.real_weights and not options.twin else None


def random_model(config: dict[str, Any]) -> Any:
    """A bf16 model of ``config`` with the weights that HuggingFace begins with, on the GPU where there is one."""
    from transformers import AutoModelForCausalLM

    factory: Any = AutoModelForCausalLM  # untyped
    torch.manual_seed(SEED)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        return factory.from_config(hf_config(config), dtype=torch.bfloat16).eval()


def _begun(workload: Workload, options: Options, commit: str, asked: float | None, left: float) -> Run:
    """The run before anything is known of it."""
    given = _given(workload, options)
    kinds = [kind for kind, is_so in (("twin", options.twin), (options.dtype, options.dtype != "bf16")) if is_so]
    return Run(
        format=FORMAT,
        workload="-".join([workload.name, *kinds]),
        title=", ".join([workload.model, *kinds]),
        weights=given.name if given else f"random, seed {SEED}",
        target=options.target.name,
        commit=commit,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        budget_s=asked,
        failure="it was not finished" if left > 0 else LEFT_OUT,
        result=None,
    )


def _commit() -> str:
    asked = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit("git does not know this tree: name what runs with --commit") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description="Measure workloads beside PyTorch.")
    add = parser.add_argument
    add("--workload", nargs="+", choices=list(WORKLOADS), help="default: all of them", metavar="NAME")
    add("--checkpoint", type=Path, help="a checkpoint of SmolLM2-135M; without one its weights are random")
    add("--contexts", type=_numbers, help="comma-separated; default: the workload's")
    add("--against", type=_arms, help=f"some of {','.join(TORCH_ARMS)}, or nothing; default: the workload's")
    add("--dtype", choices=DTYPES, default="bf16", help="of amk's weights")
    add("--rounds", type=int, default=ROUNDS, help="samples of each arm, which take turns")
    add("--tokens", type=int, default=TOKENS, help="of a sample")
    add("--budget-seconds", type=float, help="begin no sample after so many; what is left out says so")
    add("--arch", help="cpu, host, sm_90 ...; default: this GPU's, else cpu")
    add("--target", help="a chip: h100-sxm, h200 ...; default: the arch's")
    add("--twin", action="store_true", help="small models of the same architectures")
    add("--commit", help="of the tree that runs, where git cannot tell")
    add("--out", type=Path, default=ROOT / "bench" / "results")
    return parser


def _numbers(words: str) -> list[int]:
    return [int(word) for word in words.split(",")]


def _arms(words: str) -> list[str]:
    arms = [word for word in words.split(",") if word]
    if unknown := [arm for arm in arms if arm not in TORCH_ARMS]:
        raise argparse.ArgumentTypeError(f"there is no arm {', '.join(unknown)}")
    return arms


if __name__ == "__main__":
    sys.exit(main())
