"""Where amk keeps things: can it write there, how much is there, and which checkpoints are ready?"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from rich.filesize import decimal

from amk.cli.checks.check import Check
from amk.cli.disk import children, size_bytes
from amk.settings import settings


def check_home() -> Check:
    """``AMK_HOME``; nothing is created to find out whether it could be."""
    home = settings().home
    nearest = next(folder for folder in (home, *home.parents) if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        return Check("AMK_HOME", "fail", f"{home} cannot be written", "set AMK_HOME to a folder that can be written")
    free = decimal(shutil.disk_usage(nearest).free)
    return Check("AMK_HOME", "ok", f"{home}, {decimal(size_bytes(home))} used, {free} free")


def check_checkpoints() -> Check:
    """Checkpoints that were prepared: found by alias, without a network."""
    folder: Path = settings().checkpoints
    ready = [f"{entry.name} ({decimal(size_bytes(entry))})" for entry in children(folder) if entry.is_dir()]
    if ready:
        return Check("checkpoints", "ok", ", ".join(ready))
    return Check(
        "checkpoints",
        "warn",
        f"none prepared in {folder}",
        "`make setup` prepares the demo checkpoint; a local folder or a hub id works without",
    )
