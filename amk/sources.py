"""Digests of amk's own source, so that what was computed by other code is not taken for current."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).parent


@cache
def sources_digest(*names: str) -> str:
    """sha256, in hex, of the Python files ``names`` (files or folders of the package, ``ir`` or ``ir/graph.py``)."""
    digest = hashlib.sha256()
    for name in sorted(names):
        path = _PACKAGE / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(
                f"{file.relative_to(_PACKAGE).as_posix()}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode()
            )
    return digest.hexdigest()
