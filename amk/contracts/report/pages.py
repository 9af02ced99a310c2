"""One page a kernel, and beside it what it takes to see a finding again: sources, the failing input, a script."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from amk.contracts.hearing import AS_MADE
from amk.contracts.report.inputs import expression
from amk.contracts.report.templates import plain_template
from amk.contracts.report.text import printable
from amk.contracts.sources import KernelPair, Source, Text
from amk.contracts.verdicts import Finding, Judgement
from amk.settings import write_atomically

PAGES: Final = "kernels"
"""The folder of pages in that of the report."""

FIX: Final = "choose another folder for --out"


def data_name(kernel: str, gate: str) -> str:
    """Where the failing input of a gate is saved, from the folder of the page."""
    return f"{kernel}/{gate}.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failing:
    """A finding with a failing input, as the page shows it; ``data`` and ``script`` are paths from its folder."""

    gate: str
    verdict: str
    why: str
    case: str
    inputs: tuple[str, ...]
    data: str
    command: str
    script: str


class PageWriter:
    """Writes pages into ``folder``.

    Parameters
    ----------
    names
        Of the gates, by id.
    dtype
        That the judge was asked for; a judgement has the one that it came to.
    """

    def __init__(self, folder: Path, names: Mapping[str, str], dtype: str) -> None:
        self._folder = folder
        self._dtype = dtype
        self._names = names
        self._page = plain_template("kernel.md.j2")
        self._script = plain_template("reproduce.py.j2")

    def write(self, judgement: Judgement, origin: str, kernel: KernelPair | None) -> None:
        """Write the page of one kernel, and its files where there is something to see again."""
        failing = [found for found in judgement.findings if found.failing is not None]
        saved = self._save_sources(judgement.kernel, kernel) if kernel is not None and failing else {}
        page = self._page.render(
            kernel=judgement.kernel,
            status=judgement.status,
            why=judgement.why,
            origin=origin,
            device=judgement.device,
            dtype=judgement.dtype,
            seed=judgement.seed,
            findings=judgement.findings,
            names=self._names,
            failings=[self._failing(judgement, found, saved) for found in failing],
            figures=list(_figures(judgement.findings)),
            saved=sorted(set(saved.values())),
        )
        self._write(f"{judgement.kernel}.md", page.encode())

    def _save_sources(self, name: str, kernel: KernelPair) -> dict[str, str]:
        """Where the texts of the reference and the candidate were written; empty where either is no text."""
        texts: dict[str, Source] = {"reference": kernel.reference, "candidate": kernel.candidate}
        saved: dict[str, str] = {}
        for role, source in texts.items():
            if not isinstance(source, Text):
                return {}
            saved[role] = f"{name}/{role}.py"
            self._write(saved[role], source.code.encode(errors="surrogatepass"))
        return saved

    def _failing(self, judgement: Judgement, found: Finding, saved: Mapping[str, str]) -> _Failing:
        failing = found.failing
        assert failing is not None
        name, data, script = judgement.kernel, "", ""
        if failing.data:
            data = data_name(name, found.gate)
            self._write(data, failing.data)
            inputs = expression(failing.inputs)
            if saved and inputs is not None:
                script = f"{name}/{found.gate}.py"
                text = self._script.render(
                    gate=found.gate,
                    gate_name=self._names[found.gate],
                    kernel=name,
                    device=judgement.device,
                    dtype=None if self._dtype == AS_MADE else self._dtype,
                    seed=int(judgement.seed),
                    inputs=inputs,
                )
                self._write(script, text.encode())
        return _Failing(
            gate=found.gate,
            verdict=found.verdict,
            why=found.why,
            case=failing.case,
            inputs=failing.inputs,
            data=data,
            command=self._command(judgement, found, saved),
            script=script,
        )

    def _command(self, judgement: Judgement, found: Finding, saved: Mapping[str, str]) -> str:
        """That judges the kernel again, by one gate."""
        where = [saved["candidate"], "--reference", saved["reference"]] if saved else ["PATH"]
        words = ["amk", "audit", *where, "--gates", found.gate, "--seed", str(found.seed), "--device", judgement.device]
        words += [] if self._dtype == AS_MADE else ["--dtype", self._dtype]
        return shlex.join([*words, "--out", f"again-{found.gate}"])

    def _write(self, name: str, data: bytes) -> None:
        write_atomically(self._folder / name, data, fix=FIX)


def _figures(findings: Iterable[Finding]) -> Iterable[tuple[str, str, str]]:
    for found in findings:
        for name, value in found.figures.items():
            shown = f"{value:.6g}" if math.isfinite(value) else printable(str(value))
            yield found.gate, name, shown
