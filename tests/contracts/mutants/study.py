"""The gates on generated kernels: how many correct ones they accuse, how many broken ones they catch.

    python -m tests.contracts.mutants.study --out FILE.json --count 300

The standard test's own rate stands beside theirs. Kernel n of a seed is always the same (``--only broken-017`` prints
it with all that was found of it).

What counts: a *false alarm* is a correct kernel of which any gate but the standard test finds a violation, or which
counts as failed; a broken kernel is *caught* by the same rule. A refusal of a size is neither. That a correct kernel is
correct is by construction (``stages``): its words are torch's own for the same function; that a broken one is broken is
shown by a probe (``probes``) that shares no code with the gates.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import torch

from amk.contracts.report.statistics import share
from amk.contracts.sources import kernelbench_pair
from amk.contracts.verdicts import STANDARD, Judgement
from amk.contracts.verify import Options, judge_kernel
from amk.sources import sources_digest
from tests.contracts.mutants.broken import broken
from tests.contracts.mutants.compose import Kernel
from tests.contracts.mutants.correct import correct


def judged(kernel: Kernel) -> tuple[Kernel, Judgement]:
    """What all gates say of a kernel."""
    pair = kernelbench_pair(kernel.name, reference=kernel.text, candidate=kernel.text)
    return kernel, judge_kernel(pair, Options())


def is_accused(judgement: Judgement) -> bool:
    """Whether the verifier finds fault with it."""
    return judgement.status in {"violation", "broken", "failed"}


def passes_standard(judgement: Judgement) -> bool:
    """Whether the standard test at 1e-2 accepts it."""
    found = judgement.finding(STANDARD)
    return found is not None and found.verdict == "pass"


def violated(judgement: Judgement) -> dict[str, str]:
    """By gate, why it found a violation."""
    return {
        finding.gate: finding.why
        for finding in judgement.findings
        if finding.verdict == "violation" and finding.gate != STANDARD
    }


def study(
    count: int, *, seed: int, jobs: int = 1, note: Callable[[Kernel, Judgement], None] = lambda kernel, judgement: None
) -> dict[str, Any]:
    """Judge ``count`` correct and ``count`` broken kernels, and count."""
    sides = {"correct": correct, "broken": broken}
    found: dict[str, list[tuple[Kernel, Judgement]]] = {}
    for side, generate in sides.items():
        found[side] = []
        for kernel, judgement in _each(list(generate(count, seed=seed)), jobs):
            found[side].append((kernel, judgement))
            note(kernel, judgement)
    return document(found)


def _each(kernels: Sequence[Kernel], jobs: int) -> Iterator[tuple[Kernel, Judgement]]:
    if jobs == 1:
        yield from map(judged, kernels)
        return
    with get_context("spawn").Pool(jobs) as workers:
        yield from workers.imap(judged, kernels)


def document(found: dict[str, list[tuple[Kernel, Judgement]]]) -> dict[str, Any]:
    """Rates with their exact 95 % intervals, and every kernel that was judged wrongly."""
    good, bad = found["correct"], found["broken"]
    alarms = [pair for pair in good if is_accused(pair[1])]
    caught = [pair for pair in bad if is_accused(pair[1])]
    unjudged = [kernel.name for kernel, judgement in (*good, *bad) if judgement.status == "not judged"]
    return {
        "false_alarms": _rate(len(alarms), len(good)),
        "caught": _rate(len(caught), len(bad)),
        "standard_test": {
            "tolerance": 1e-2,
            "false_alarms": _rate(sum(not passes_standard(judgement) for _, judgement in good), len(good)),
            "caught": _rate(sum(not passes_standard(judgement) for _, judgement in bad), len(bad)),
        },
        "not_judged": unjudged,
        "false_alarm_list": [_line(*pair) for pair in alarms],
        "missed_list": [_line(*pair) for pair in bad if not is_accused(pair[1])],
        "violations_by_gate": {
            side: dict(sorted(Counter(gate for _, judgement in pairs for gate in violated(judgement)).items()))
            for side, pairs in found.items()
        },
        "mutations": _by_mutation(bad),
        "kernels": [
            {
                "name": kernel.name,
                "chain": kernel.text.splitlines()[0].strip('"'),
                "status": judgement.status,
                "standard": passes_standard(judgement),
                "violated": sorted(violated(judgement)),
                "seconds": round(judgement.seconds, 2),
            }
            for kernel, judgement in (*good, *bad)
        ],
    }


def _rate(count: int, of: int) -> dict[str, float]:
    return msgspec.to_builtins(share(count, of)) | {"rate": round(count / of, 4) if of else 0.0}


def _line(kernel: Kernel, judgement: Judgement) -> dict[str, object]:
    return {
        "name": kernel.name,
        "mutation": kernel.mutation,
        "status": judgement.status,
        "why": judgement.why,
        "violated": violated(judgement),
        "text": kernel.text,
    }


def _by_mutation(bad: Sequence[tuple[Kernel, Judgement]]) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = {}
    for kernel, judgement in bad:
        row = table.setdefault(kernel.mutation, {"kernels": 0, "caught": 0, "caught by the standard test": 0})
        row["kernels"] += 1
        row["caught"] += is_accused(judgement)
        row["caught by the standard test"] += not passes_standard(judgement)
    return dict(sorted(table.items()))


def main(arguments: Sequence[str]) -> int:
    """The command above; exit code 1 beyond 1 % of false alarms, or below 99 % caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.contracts.mutants.study", description="Gates on mutants.")
    parser.add_argument("--out", type=Path, help="write the result here")
    parser.add_argument("--count", type=int, default=300, help="kernels of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="kernels judged at a time")
    parser.add_argument("--explain", action="append", default=[], metavar="NAME=WHY", help="what was found of an alarm")
    parser.add_argument("--only", help="judge one kernel, and show all of it")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.only:
        return _show(options.only, options.seed)

    def note(kernel: Kernel, judgement: Judgement) -> None:
        if is_accused(judgement) is not bool(kernel.mutation):
            print(
                f"{kernel.name} {kernel.mutation}: {judgement.status} {judgement.why} {violated(judgement)}", flush=True
            )

    began = time.perf_counter()
    counted = study(options.count, seed=options.seed, jobs=options.jobs, note=note)
    reasons = dict(one.split("=", 1) for one in options.explain)
    for line in (*counted["false_alarm_list"], *counted["missed_list"]):
        line["explanation"] = reasons.get(line["name"], "")
    result = {
        "command": f"python -m tests.contracts.mutants.study --count {options.count} --seed {options.seed}",
        "machine": f"{platform.machine()}, Python {platform.python_version()}, {options.jobs} at a time",
        "torch": torch.__version__,
        "seconds": round(time.perf_counter() - began, 1),
        "contracts": sources_digest("contracts"),
        "seed": options.seed,
        **counted,
    }
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    shown = ("seconds", "false_alarms", "caught", "standard_test", "not_judged", "violations_by_gate")
    print(json.dumps({key: result[key] for key in shown}, indent=1))
    return int(counted["false_alarms"]["rate"] > 0.01 or counted["caught"]["rate"] < 0.99)


def _show(name: str, seed: int) -> int:
    side, _, number = name.partition("-")
    kernel = list({"correct": correct, "broken": broken}[side](int(number) + 1, seed=seed))[-1]
    print(kernel.text)
    _, judgement = judged(kernel)
    print(judgement.status, judgement.why)
    for finding in judgement.findings:
        print(f"{finding.gate} {finding.verdict} ({finding.cases} cases): {finding.why}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
