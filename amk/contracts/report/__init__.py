"""The report of an audit: ``report.json`` with all of it, ``report.html`` to look at, and a page a kernel."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import msgspec

from amk.contracts.forms import Work
from amk.contracts.report.document import Document
from amk.contracts.report.html import Heading, render_html
from amk.contracts.report.pages import PAGES, PageWriter
from amk.contracts.report.statistics import Row, Statistics, statistics
from amk.contracts.verdicts import Judgement
from amk.settings import write_atomically

__all__ = ["HTML", "JSON", "Heading", "Statistics", "machine", "write_report"]

JSON: Final = "report.json"
HTML: Final = "report.html"


def write_report(
    out: Path, entries: Iterable[tuple[Work, Judgement]], heading: Heading, *, timings: Mapping[str, Any]
) -> Statistics:
    """Write the report into ``out``, and say what the judgements amount to.

    Parameters
    ----------
    entries
        In the order of the work list; gone through once, and not kept.
    timings
        What differs from run to run: it has a section of its own.

    Raises
    ------
    UnwritablePathError
    """
    rows: list[Row] = []
    pages = PageWriter(out / PAGES, heading.names, str(heading.options["dtype"]))
    with Document(out / JSON, asdict(heading)) as document:
        for work, judgement in entries:
            document.add(judgement, work.origin)
            pages.write(judgement, work.origin, work.kernel)
            rows.append(Row.of(judgement))
        found = statistics(rows)
        document.finish({"statistics": plain_statistics(found)}, timings)
    write_atomically(out / HTML, render_html(heading, rows, found).encode(), fix="choose another folder for --out")
    return found


def machine(device: str) -> dict[str, str]:
    """What the kernels ran on, as far as a report needs it."""
    import torch

    found = {
        "system": f"{platform.system()} {platform.machine()}",
        "processors": str(os.cpu_count()),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    if device.startswith("cuda") and torch.cuda.is_available():
        found |= {"gpu": torch.cuda.get_device_name(), "cuda": str(torch.version.cuda)}
    return found


def plain_statistics(found: Statistics) -> dict[str, Any]:
    """``found`` for JSON."""
    plain: dict[str, Any] = msgspec.to_builtins(found)
    return plain
