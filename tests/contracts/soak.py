"""A long audit: generated kernels through all gates, once in a go and once killed and resumed, with memory watched.

    python -m tests.contracts.soak --count 1000 --out build/soak -o bench/results/cpu/DATE-verifier-soak.json

Half of the kernels are correct, half have one mutation each, and one in fifty does worse: it ends its process, fills
memory, hangs, or replaces what it would be compared with.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import re
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from amk.contracts.audit import JOURNAL
from amk.contracts.report.document import without_timings
from amk.sources import sources_digest
from tests.contracts.mutants.broken import broken
from tests.contracts.mutants.correct import correct

SAMPLE_S = 1.0
LAST_WORDS = re.compile(r'; its output ends: (?:[^"\\]|\\.)*')

HEAD = """import ctypes, os, sys, time
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(8, 12)]
def get_init_inputs():
    return []
class ModelNew(Model):
    calls = 0
    def forward(self, x):
"""
NASTY = {
    "exits": "sys.exit(0)",
    "exits-later": "ModelNew.calls += 1\n        if ModelNew.calls > 9: os._exit(0)\n        return x.relu()",
    "segfaults": "ctypes.string_at(8)",
    "fills-memory": "held = [torch.ones(1 << 28) for _ in range(1 << 10)]\n        return held",
    "hangs": "while True: time.sleep(1)",
    "patches": "torch.equal = torch.allclose = lambda *a, **k: True\n        return torch.relu(x) + 1",
    "raises": "raise RuntimeError('no')",
    "removes-files": "import shutil; shutil.rmtree(os.getcwd(), ignore_errors=True)\n        return torch.relu(x)",
    "kills-its-group": "os.kill(0, 9)",
    "forks": "os.fork()\n        return torch.relu(x)",
}


@dataclass(slots=True)
class Run:
    """One run of the command.

    Attributes
    ----------
    samples
        (seconds, kernels done, resident bytes of the command's own process, of it and all below it, processes).
    """

    wall_s: float = 0.0
    cpu_s: float = 0.0
    exit_code: int | None = None
    samples: list[tuple[float, int, int, int, int]] = field(default_factory=list)

    def peak(self, column: int, first: float = 0.0, last: float = 1.0) -> int:
        """The largest of a column between two shares of the run."""
        count = len(self.samples)
        part = self.samples[int(first * count) : max(int(first * count) + 1, int(last * count))]
        return max((sample[column] for sample in part), default=0)

    def quarters(self, column: int) -> list[int]:
        return [self.peak(column, at / 4, (at + 1) / 4) for at in range(4)]


def write_kernels(folder: Path, count: int, seed: int) -> None:
    """The kernels as files; those that are there already are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    nasty = list(NASTY) * max(1, count // 50 // len(NASTY))
    right = (count - len(nasty)) // 2
    if len(list(folder.glob("*.py"))) == count:
        return
    for kernel in correct(right, seed=seed):
        (folder / f"{kernel.name}.py").write_text(kernel.text)
    for kernel in broken(count - len(nasty) - right, seed=seed):
        (folder / f"{kernel.name}.py").write_text(kernel.text)
    for number, name in enumerate(nasty):
        (folder / f"nasty-{number:03d}-{name}.py").write_text(f"{HEAD}        {NASTY[name]}\n")


def run(folder: Path, out: Path, jobs: int, kill_at: int | None = None) -> Run:
    """Audit ``folder`` into ``out``; kill the command when its journal has ``kill_at`` kernels."""
    words = ["audit", str(folder), "--device", "cpu", "--memory-gb", "2", "--jobs", str(jobs), "--out", str(out)]
    found, before, start = Run(), resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with (out.parent / f"{out.name}.log").open("a") as log:
        process = subprocess.Popen([sys.executable, "-m", "amk.cli.app", *words], stdout=log, stderr=log)
        while process.poll() is None:
            done = kernels_in(out / JOURNAL)
            sizes = [bytes_of(pid) for pid in tree(process.pid)]
            found.samples.append((time.monotonic() - start, done, sizes[0] if sizes else 0, sum(sizes), len(sizes)))
            if kill_at is not None and done >= kill_at:
                process.send_signal(signal.SIGKILL)
                process.wait()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SAMPLE_S)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found.exit_code = process.returncode
    found.wall_s = time.monotonic() - start
    found.cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return found


def kernels_in(journal: Path) -> int:
    return max(0, journal.read_bytes().count(b"\n") - 1) if journal.exists() else 0


def tree(pid: int) -> Iterator[int]:
    """A process and all below it, by their parents."""
    children: dict[int, list[int]] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int(Path(f"/proc/{entry.name}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    waiting = [pid]
    while waiting:
        at = waiting.pop()
        yield at
        waiting += children.get(at, [])


def bytes_of(pid: int) -> int:
    """Its proportional share of memory: a page that several processes have counts once over all of them."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


def differences(one: Path, other: Path) -> dict[str, list[str]]:
    """Kernels of which two reports do not say the same: by status, and in the evidence alone, with what they are.

    What a crash has printed is left out: it has addresses and temporary folders in it. A kernel that does not repeat
    itself (a race, noise, memory that it never wrote) gives other evidence in every run, interrupted or not.
    """
    a, b = (without_timings(json.loads(LAST_WORDS.sub("", (out / "report.json").read_text()))) for out in (one, other))
    theirs = {kernel["kernel"]: kernel for kernel in b.pop("kernels")}
    mine = {kernel["kernel"]: kernel for kernel in a.pop("kernels")}
    assert mine.keys() == theirs.keys()
    differing = [name for name in mine if mine[name] != theirs[name]]
    changed = [name for name in differing if mine[name]["status"] != theirs[name]["status"]]
    return {
        "status": changed,
        "evidence": [f"{name}: {title_of(mine[name]['origin'])}" for name in differing if name not in changed],
        "other": [key for key in sorted(a.keys() | b.keys()) if key != "statistics" and a.get(key) != b.get(key)],
    }


def title_of(path: str) -> str:
    """The first line of a generated kernel."""
    return Path(path).read_text().splitlines()[0].strip('"')


def by_kind(out: Path) -> dict[str, dict[str, int]]:
    """Statuses of correct, broken and nasty kernels; what each nasty one came to."""
    found: dict[str, Counter[str]] = {}
    for kernel in json.loads((out / "report.json").read_text())["kernels"]:
        kind, _, rest = kernel["kernel"].partition("-")
        found.setdefault(kind if kind != "nasty" else f"nasty {rest[4:]}", Counter())[kernel["status"]] += 1
    return {kind: dict(counts) for kind, counts in sorted(found.items())}


def figures(made: Run) -> dict[str, Any]:
    return {
        "wall_s": round(made.wall_s, 1),
        "cpu_s": round(made.cpu_s, 1),
        "exit_code": made.exit_code,
        "peak_bytes": made.peak(3),
        "peak_bytes_by_quarter": made.quarters(3),
        "command_peak_bytes": made.peak(2),
        "command_peak_bytes_by_quarter": made.quarters(2),
        "processes_most": made.peak(4),
        "samples": [list(sample) for sample in made.samples[:: max(1, len(made.samples) // 200)]],
    }


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=1000)
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--out", type=Path, default=Path("build/soak"))
    options.add_argument("-o", "--result", type=Path)
    given = options.parse_args()
    folder = given.out / "kernels-in"
    write_kernels(folder, given.count, given.seed)
    whole, cut = given.out / "whole", given.out / "cut"
    at_once = run(folder, whole, given.jobs)
    kill_at = random.Random(given.seed + 1).randrange(given.count // 4, 3 * given.count // 4)
    killed = run(folder, cut, given.jobs, kill_at=kill_at)
    had = kernels_in(cut / JOURNAL)
    kept = (cut / JOURNAL).read_bytes()
    kept = kept[: kept.rfind(b"\n") + 1]
    resumed = run(folder, cut, given.jobs)
    report = json.loads((whole / "report.json").read_text())
    result = {
        "command": " ".join(["python -m tests.contracts.soak", *sys.argv[1:]]),
        "machine": {**report["machine"], "processor": platform.processor(), "load": os.getloadavg()},
        "torch": torch.__version__,
        "contracts_digest": sources_digest("contracts"),
        "count": given.count,
        "jobs": given.jobs,
        "statuses": report["statistics"]["statuses"],
        "by_kind": by_kind(whole),
        "statistics": report["statistics"],
        "whole": figures(at_once),
        "killed": {"at_kernel": kill_at, "journal_had": had, "exit_code": killed.exit_code},
        "resumed": figures(resumed),
        "journal_of_then_is_kept": (cut / JOURNAL).read_bytes().startswith(kept),
        "lines_in_the_journal_at_the_end": kernels_in(cut / JOURNAL),
        "kernels_that_differ_from_the_other_run": differences(whole, cut),
    }
    if given.result:
        given.result.write_text(json.dumps(result, indent=1) + "\n")
    shown = {key: value for key, value in result.items() if key != "statistics"}
    for part in ("whole", "resumed"):
        shown[part] = {key: value for key, value in shown[part].items() if key != "samples"}
    print(json.dumps(shown, indent=1))
    good = result["journal_of_then_is_kept"] and result["lines_in_the_journal_at_the_end"] == given.count
    return 0 if good and not result["kernels_that_differ_from_the_other_run"]["status"] else 1


if __name__ == "__main__":
    sys.exit(main())
