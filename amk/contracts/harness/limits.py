"""What the system holds a kernel's process to, and how all that it has started is found."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Final

PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36
FILE_BYTES_MAX: Final = 4 << 30
"""Of one file that a kernel writes: builds of extensions stay far below it."""

_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Descendants whose parent is gone become this process's children, instead of init's."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def leave_parent(parent: int) -> None:
    """Lead a session of one's own, and die with ``parent``."""
    os.setsid()
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it went before the call
        os._exit(0)


def limit_memory(memory_bytes: int) -> None:
    """Let the address space grow by ``memory_bytes`` beyond what it is now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    now_bytes = pages * resource.getpagesize()
    _lower(resource.RLIMIT_AS, now_bytes + memory_bytes)


def limit_files(memory_bytes: int = 0) -> None:
    """No core dumps, and no file without end; one that lies in memory may be as large as that."""
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, max(FILE_BYTES_MAX, memory_bytes))


def _lower(which: int, to: int) -> None:
    _, hard = resource.getrlimit(which)
    allowed = to if hard == resource.RLIM_INFINITY else min(to, hard)
    resource.setrlimit(which, (allowed, allowed))


def children_of(pid: int) -> list[int]:
    """Processes, dead ones not yet waited for among them, whose parent is ``pid``."""
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]
    return [process for process, fields in _stats() if int(fields[1]) == pid]


def session_of(leader: int) -> list[tuple[int, int]]:
    """(pid, bytes resident) of each process in the session that ``leader`` leads."""
    page = resource.getpagesize()
    return [(pid, int(fields[21]) * page) for pid, fields in _stats() if int(fields[3]) == leader]


def _stats() -> list[tuple[int, list[str]]]:
    """(pid, the fields of proc(5)'s stat from the third on) of all processes."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{entry.name}/stat").read_text(encoding="utf-8", errors="replace")
                found.append((int(entry.name), text.rpartition(")")[2].split()))
    return found


def kill_all(pid: int) -> None:
    """Kill a process and its group, whichever of them are left."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def close_all_but(keep: int) -> None:
    """Close every descriptor from 3 on but ``keep``."""
    os.closerange(3, keep)
    os.closerange(keep + 1, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], sys.maxsize))
