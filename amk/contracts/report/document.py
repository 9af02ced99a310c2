"""``report.json``: all that an audit found, raw. It is written a kernel at a time."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self, TextIO

from amk.contracts.journal import OUT_FIX, to_plain
from amk.contracts.report.pages import PAGES, data_name
from amk.contracts.verdicts import Judgement
from amk.errors import UnwritablePathError

FORMAT: Final = 1

TIMINGS: Final = "timings"
"""The section that differs from run to run; the rest does not."""


class Document:
    """Writes the document under another name, which becomes ``path`` when it is whole; a context manager."""

    def __init__(self, path: Path, head: Mapping[str, Any]) -> None:
        self._path = path
        self._head = head
        self._stream: TextIO | None = None
        self._temporary = Path()
        self._seconds: dict[str, float] = {}

    def __enter__(self) -> Self:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
        except OSError as error:
            raise UnwritablePathError(path=self._path, why=error.strerror or error, fix=OUT_FIX) from error
        self._temporary = Path(name)
        self._stream = os.fdopen(handle, "w", encoding="ascii")
        self._stream.write(f'{{\n"report": {FORMAT},\n')
        for key, value in self._head.items():
            self._stream.write(f"{json.dumps(key)}: {json.dumps(value)},\n")
        self._stream.write('"kernels": [')
        return self

    def add(self, judgement: Judgement, origin: str) -> None:
        """Write one kernel. Its failing inputs are named by the files that hold them."""
        assert self._stream is not None
        plain = to_plain(judgement)
        self._stream.write(",\n" if self._seconds else "\n")
        self._seconds[judgement.kernel] = plain.pop("seconds")
        for found, shown in zip(judgement.findings, plain["findings"], strict=True):
            if found.failing is not None and found.failing.data:
                shown["failing"]["data"] = f"{PAGES}/{data_name(judgement.kernel, found.gate)}"
        self._stream.write(json.dumps({"origin": origin, **plain}))

    def finish(self, tail: Mapping[str, Any], timings: Mapping[str, Any]) -> None:
        """Write what is known when all kernels are, and put the document in its place."""
        assert self._stream is not None
        self._stream.write("\n],\n")
        for key, value in tail.items():
            self._stream.write(f"{json.dumps(key)}: {json.dumps(value)},\n")
        last = {**timings, "seconds": self._seconds}
        self._stream.write(f"{json.dumps(TIMINGS)}: {json.dumps(last)}\n}}\n")
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._temporary.replace(self._path)

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()
        self._temporary.unlink(missing_ok=True)


def without_timings(document: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a report that is the same however often an audit was interrupted."""
    return {key: value for key, value in document.items() if key != TIMINGS}
