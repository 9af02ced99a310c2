"""Every environment variable amk reads, in one typed place; nothing else in the package touches ``os.environ``.

======================  =============================================  ==========================================
variable                meaning                                        default
======================  =============================================  ==========================================
``AMK_HOME``            prepared checkpoints and the build cache       ``~/.cache/amk`` (or ``XDG_CACHE_HOME``)
``AMK_WATCHDOG_S``      seconds a wait inside a kernel may take         5
``AMK_CXX``             C++ compiler for ``arch="host"``                g++, else clang++
``AMK_LOG``             level of the ``amk`` logger on the CLI         ``warning``
======================  =============================================  ==========================================

HuggingFace's own variables (``HF_HOME``, ``HF_TOKEN``, ``HF_HUB_OFFLINE`` ...) are honoured by huggingface_hub itself.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from amk.errors import BadSettingError, UnwritablePathError

HOME_FIX = "set AMK_HOME to a folder that can be written"

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
    watchdog_s
        Seconds after which a wait inside a kernel ends the launch; raise it under a profiler or a sanitizer.
    cxx
        C++ compiler of ``arch="host"``; empty for the first that is found.
    """

    home: Path
    log_level: str
    watchdog_s: float
    cxx: str

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
    return Settings(
        home=root.expanduser(), log_level=level, watchdog_s=_watchdog_s(), cxx=os.environ.get("AMK_CXX", "")
    )


def environment() -> dict[str, str]:
    """The whole environment, for a process that amk starts."""
    return dict(os.environ)


def set_environment(values: Mapping[str, str]) -> None:
    """Set variables for what runs in this process from now on: in a process that is about to run someone's kernel."""
    os.environ.update(values)


def _watchdog_s() -> float:
    text = os.environ.get("AMK_WATCHDOG_S", "5")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds <= 3600.0:
        why, fix = "it is not a time a wait may take", "a number of seconds, above 0 and at most 3600"
        raise BadSettingError(variable="AMK_WATCHDOG_S", value=text, why=why, fix=fix)
    return seconds


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
        raise UnwritablePathError(path=path, why=error.strerror or error, fix=HOME_FIX) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise UnwritablePathError(path=path, why="permission denied", fix=HOME_FIX)
    return path


def write_atomically(path: Path, data: bytes, *, fix: str = HOME_FIX) -> None:
    """Write a file whole or not at all: under another name, then renamed.

    Raises
    ------
    UnwritablePathError
        ``fix`` is the mend that it names.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise UnwritablePathError(path=path, why=error.strerror or error, fix=fix) from error
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).replace(path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise UnwritablePathError(path=path, why=error.strerror or error, fix=fix) from error
