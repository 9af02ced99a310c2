"""Sizes and removal of what lies on disk; symbolic links are counted and removed as links, never followed."""

from __future__ import annotations

import shutil
from pathlib import Path

from amk.errors import UnwritablePathError
from amk.settings import HOME_FIX


def children(folder: Path) -> list[Path]:
    """Entries of ``folder`` in order; none if it is not a folder."""
    return sorted(folder.iterdir()) if folder.is_dir() else []


def size_bytes(path: Path) -> int:
    """Bytes of the files at and under ``path``; 0 if there is none."""
    if path.is_dir() and not path.is_symlink():
        return sum(size_bytes(entry) for entry in path.iterdir())
    try:
        return path.lstat().st_size
    except (FileNotFoundError, NotADirectoryError):  # another process tidied it away, or it was never there
        return 0


def remove(path: Path) -> None:
    """Remove a file, a link or a whole folder.

    Raises
    ------
    UnwritablePathError
        It could not be removed.
    """
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise UnwritablePathError(path=path, why=error.strerror or error, fix=HOME_FIX) from error
