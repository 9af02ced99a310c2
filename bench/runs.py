"""What a run of a workload leaves in a file, and the figures that tables and plots draw from it.

Needs neither torch nor a GPU: results are rendered where nothing is measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal

import msgspec

from amk.ir.record import Record
from amk.measure.result import AMK, BenchResult, Row, write_record

FORMAT: Final = "amk-bench-1"

KV_BYTES_PER_S = 4.3e12
KV_SLACK = 1.15
CONTEXT_SLACK_US = 20.0
"""The bar on context: t(n) <= t(least) + 1.15 x (KV bytes of n / 4.3 TB/s) + 20 us."""


class Run(Record):
    """One workload, measured once.

    Attributes
    ----------
    workload, title
        Its name in files, and in tables.
    weights
        Where they come from.
    commit
        Of the tree that ran; ``-dirty`` where it differed from it.
    date
        When it began, ISO 8601, UTC.
    budget_s
        Seconds that it was given; None for as many as it takes.
    failure
        Why it ended early; empty if it did not.
    result
        As far as it came; None if it measured nothing.
    """

    format: Literal["amk-bench-1"]
    workload: str
    title: str
    weights: str
    target: str
    commit: str
    date: str
    budget_s: float | None
    failure: str
    result: BenchResult | None

    def path(self, out: Path) -> Path:
        """Of its file: ``<out>/<target>/<date>-<commit>-<workload>.json``."""
        return out / self.target / f"{self.date[:10]}-{self.commit}-{self.workload}.json"

    def write(self, out: Path) -> Path:
        """Write it; the file's path."""
        path = self.path(out)
        write_record(self, path)
        return path

    @property
    def rows(self) -> tuple[Row, ...]:
        """Of its result, if it has one."""
        return self.result.rows if self.result else ()

    def times(self, row: Row) -> bool:
        """Whether the latency of ``row`` may be told; see ``BenchResult.times``."""
        return self.result is not None and self.result.times(row)

    def told(self, arm: str) -> list[Row]:
        """The rows of an arm whose latency may be told, by context."""
        return sorted((row for row in self.rows if row.arm == arm and self.times(row)), key=lambda row: row.context)

    def best_torch_us(self, context: int) -> float | None:
        """The median of the fastest arm of PyTorch at a context; None if none has one."""
        medians = [row.median for row in self.rows if row.context == context and row.arm != AMK and self.times(row)]
        return min(medians, default=None)

    def bar_us(self, row: Row) -> float | None:
        """What amk may take at the context of ``row``, by what it takes at the least; None at the least itself."""
        first = next(iter(self.told(AMK)), None)
        if first is None or row.context <= first.context:
            return None
        return first.median + KV_SLACK * row.kv_bytes / KV_BYTES_PER_S * 1e6 + CONTEXT_SLACK_US


def read_run(path: Path) -> Run | None:
    """The run in a file; None if it is a file of another kind, as its ``format`` says.

    Raises
    ------
    msgspec.ValidationError
        It says that it is a run, and is none.
    """
    data = path.read_bytes()
    found = msgspec.json.decode(data)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        return None
    return msgspec.json.decode(data, type=Run)


def newest(runs: Iterable[tuple[Path, Run]]) -> list[tuple[Path, Run]]:
    """Of each workload on each target the last run, those with the fewest weight bytes first."""
    last: dict[tuple[str, str], tuple[Path, Run]] = {}
    for path, run in sorted(runs, key=lambda found: found[1].date):
        last[run.target, run.workload] = (path, run)
    return sorted(
        last.values(),
        key=lambda found: (found[1].target, found[1].result.weight_bytes if found[1].result else 0, found[1].workload),
    )
