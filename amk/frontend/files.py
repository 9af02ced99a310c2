"""Reading and writing of small files: JSON with errors that name file and line, and digests of files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from amk.errors import UnreadableInputError
from amk.frontend.errors import BadJsonError
from amk.settings import settings, write_atomically


def read_json(path: Path) -> dict[str, Any]:
    """The object in ``path``.

    Raises
    ------
    BadJsonError
        It is not JSON, or not an object.
    UnreadableInputError
        It cannot be opened.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise BadJsonError(path=path, line=1, why="it is not text") from error
    except OSError as error:
        raise UnreadableInputError(
            path=path, why=error.strerror or error, fix="check the path and its permissions"
        ) from error
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise BadJsonError(path=path, line=error.lineno, why=f"{error.msg} (column {error.colno})") from error
    except RecursionError as error:
        raise BadJsonError(path=path, line=1, why="it is nested too deeply") from error
    if not isinstance(value, dict):
        raise BadJsonError(path=path, line=1, why=f"an object was expected, not {type(value).__name__}")
    return value


def canonical_json(value: Any) -> bytes:
    """One spelling for equal values: sorted keys, no white space."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def file_sha256(path: Path) -> str:
    """sha256 of a file's content, in hex; remembered by path, size and modification time in the cache folder.

    Raises
    ------
    UnwritablePathError
        The cache folder cannot be written.
    """
    real = path.resolve()
    stat = real.stat()
    key = hashlib.sha256(canonical_json([str(real), stat.st_size, stat.st_mtime_ns])).hexdigest()
    remembered = settings().cache / "sha256" / key
    try:
        digest = remembered.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        digest = ""
    if len(digest) == 64:
        return digest
    digest = content_sha256(real)
    write_atomically(remembered, digest.encode())
    return digest


def content_sha256(path: Path) -> str:
    """sha256 of a file's content, in hex, read now."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
