"""Every environment variable amk reads, in one typed place; nothing else in the package touches ``os.environ``.

======================  =============================================  ==========================================
variable                meaning                                        default
======================  =============================================  ==========================================
``AMK_HOME``            prepared checkpoints and the build cache       ``~/.cache/amk`` (or ``XDG_CACHE_HOME``)
``AMK_LOG``             level of the ``amk`` logger on the CLI         ``warning``
======================  =============================================  ==========================================

HuggingFace's own variables (``HF_HOME``, ``HF_TOKEN``, ``HF_HUB_OFFLINE`` ...) are honoured by huggingface_hub itself.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from amk.errors import BadSettingError, UnwritablePathError

LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A reading of the environment.

    Attributes
    ----------
    home
        Root of everything amk keeps on disk. Not created until something is written.
    log_level
        One of ``LOG_LEVELS``.
    """

    home: Path
    log_level: str

    @property
    def checkpoints(self) -> Path:
        """Folder of prepared checkpoints, one subfolder an alias."""
        return self.home / "checkpoints"

    @property
    def cache(self) -> Path:
        """Folder of everything that can be rebuilt: graphs, twin verdicts, cubins."""
        return self.home / "cache"


def settings() -> Settings:
    """Read the environment now (it is not cached, so tests and callers may change it).

    Raises
    ------
    BadSettingError
        A variable is set to something that cannot be used.
    """
    level = os.environ.get("AMK_LOG", "warning").lower()
    if level not in LOG_LEVELS:
        raise BadSettingError(
            variable="AMK_LOG", value=level, why="unknown level", fix="one of " + ", ".join(LOG_LEVELS)
        )
    home = os.environ.get("AMK_HOME")
    if home is not None and not home.strip():
        raise BadSettingError(variable="AMK_HOME", value=home, why="it is empty", fix="a folder")
    root = Path(home) if home else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "amk"
    return Settings(home=root.expanduser(), log_level=level)


def writable_folder(path: Path) -> Path:
    """``path``, created if need be.

    Raises
    ------
    UnwritablePathError
        It cannot be created or written; the message names the variable to set.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnwritablePathError(path=path, why=error.strerror or error, variable="AMK_HOME") from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise UnwritablePathError(path=path, why="permission denied", variable="AMK_HOME")
    return path
