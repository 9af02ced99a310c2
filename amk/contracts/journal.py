"""The journal of an audit: one line a finished kernel, on the disk before the next one is begun.

A run that is killed loses the kernels that it was at, and nothing else: the next run reads the journal, drops a last
line that was torn, and goes on. The first line says under which options, and by which gates, the kernels were judged; a
run that would judge them otherwise is refused.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

import msgspec

from amk.contracts.errors import JournalOptionsError, JournalUnreadableError
from amk.contracts.verdicts import Judgement
from amk.errors import UnwritablePathError
from amk.ir.record import Record

FORMAT: Final = 1

OUT_FIX: Final = "choose another folder for --out"

_NON_FINITE: Final = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}

logger = logging.getLogger(__name__)


class Terms(Record):
    """What a kernel's judgement depends on, beside the kernel; the journal's first line.

    Attributes
    ----------
    options
        Of the judge, by name.
    gates_digest
        Of the source that judges.
    """

    options: dict[str, str]
    gates_digest: str
    format: int = FORMAT

    def key(self, kernel: str, sources: bytes) -> str:
        """What a kernel's line is found by: a digest of its name, its sources and these terms."""
        digest = hashlib.sha256()
        for part in (msgspec.json.encode(self, order="sorted"), kernel.encode(errors="replace"), sources):
            digest.update(hashlib.sha256(part).digest())
        return digest.hexdigest()


class Journal:
    """Judgements on disk, found by their key. In memory are the keys and where each line stands.

    Use it as a context manager, or call `close`.

    Raises
    ------
    JournalOptionsError
        ``path`` was written under other terms.
    JournalUnreadableError
        It is not a journal.
    UnwritablePathError
        It cannot be written.
    """

    def __init__(self, path: Path, terms: Terms, *, fresh: bool = False) -> None:
        self._places: dict[str, tuple[int, int]] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: BinaryIO = path.open("w+b" if fresh or not path.exists() else "r+b")
        except OSError as error:
            raise UnwritablePathError(path=path, why=error.strerror or error, fix=OUT_FIX) from error
        try:
            self._load(path, terms)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def __len__(self) -> int:
        return len(self._places)

    def append(self, key: str, judgement: Judgement) -> None:
        """Write one line; it is on the disk when this returns."""
        self._append(key, json.dumps({"key": key, "judgement": to_plain(judgement)}, separators=(",", ":")).encode())

    def read(self, key: str) -> Judgement:
        """The judgement of ``key``; raises KeyError where there is none."""
        start, length = self._places[key]
        self._file.seek(start)
        return from_plain(json.loads(self._file.read(length))["judgement"])

    def close(self) -> None:
        self._file.close()

    def _load(self, path: Path, terms: Terms) -> None:
        """Note where each line stands; cut off what stands behind the last newline."""
        self._file.seek(0)
        lines = self._whole_lines()
        first = next(lines, None)
        if first is None:
            self._file.seek(0)
            if self._file.read(1) not in {b"", b"{"}:
                raise JournalUnreadableError(path=path, why="its first line is none of a journal's")
            self._file.truncate(0)
            self._append("", msgspec.json.encode(terms))
            return
        _check_terms(path, first[2], terms)
        end = first[1]
        for start, end, line in lines:
            key = _key_of(line)
            if key:
                self._places[key] = (start, end - start)
            else:
                logger.warning("%s: a line at byte %d cannot be read; its kernel is judged again", path, start)
        self._file.truncate(end)

    def _whole_lines(self) -> Iterator[tuple[int, int, bytes]]:
        """(start, end, line) of each line that ends."""
        start = 0
        for line in self._file:
            if line.endswith(b"\n"):
                yield start, start + len(line), line
            start += len(line)

    def _append(self, key: str, line: bytes) -> None:
        start = self._file.seek(0, os.SEEK_END)
        self._file.write(line + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        if key:
            self._places[key] = (start, len(line) + 1)


def to_plain(judgement: Judgement) -> dict[str, Any]:
    """``judgement`` as JSON has it: bytes in base64, figures that are no number as ``inf``, ``-inf`` and ``nan``."""
    plain: dict[str, Any] = msgspec.to_builtins(judgement)
    for finding in plain["findings"]:
        figures = finding.get("figures", {})
        finding["figures"] = {name: value if math.isfinite(value) else str(value) for name, value in figures.items()}
    return plain


def from_plain(plain: dict[str, Any]) -> Judgement:
    """The inverse of `to_plain`; raises ``msgspec.ValidationError``."""
    for finding in plain["findings"]:
        figures = finding.get("figures", {})
        finding["figures"] = {name: _NON_FINITE.get(value, value) for name, value in figures.items()}
    return msgspec.convert(plain, type=Judgement)


def _check_terms(path: Path, line: bytes, terms: Terms) -> None:
    try:
        found = msgspec.json.decode(line, type=Terms)
    except msgspec.MsgspecError as error:
        raise JournalUnreadableError(path=path, why=error) from error
    mine, theirs = _named(terms), _named(found)
    differing = [name for name in {**theirs, **mine} if mine.get(name) != theirs.get(name)]
    if differing:
        said = "; ".join(f"{name} {theirs.get(name, '-')}, now {mine.get(name, '-')}" for name in differing)
        raise JournalOptionsError(path=path, differences=said)


def _named(terms: Terms) -> dict[str, str]:
    return {**terms.options, "gates": terms.gates_digest[:12], "format": str(terms.format)}


def _key_of(line: bytes) -> str:
    """The key of a line that holds a judgement; empty of one that does not."""
    try:
        held = json.loads(line)
        from_plain(held["judgement"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
    return str(held.get("key", ""))
