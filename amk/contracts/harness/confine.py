"""What a kernel may do to the rest of the machine: signal no other process, trace none, and remove no file of others.

This is Linux's Landlock (its user space API is in the kernel's Documentation/userspace-api/landlock.rst), which needs
no privilege. A kernel of Linux without it, or with an older one, confines less; so this guards against what a careless
program does, not against one that is out to break it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterable
from typing import Final

CREATE_RULESET: Final = 444  # system calls, the same on every architecture
ADD_RULE: Final = 445
RESTRICT_SELF: Final = 446
ASK_VERSION: Final = 1
PATH_BENEATH: Final = 1
PR_SET_NO_NEW_PRIVS: Final = 38

REMOVE_DIR: Final = 1 << 4
REMOVE_FILE: Final = 1 << 5
REFER: Final = 1 << 13
"""To move files between folders; refused by any set of rules of which it is no part."""

SCOPE_SIGNAL: Final = 1 << 1
SCOPES_SINCE: Final = 6
REFER_SINCE: Final = 2

_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """Of the kernel's Landlock; 0 where there is none."""
    return max(0, int(_libc.syscall(CREATE_RULESET, None, 0, ASK_VERSION)))


def confine(removable: Iterable[str]) -> None:
    """Confine this process and all that it will start, for good.

    Parameters
    ----------
    removable
        Folders beneath which files may be removed; those that are not there are left out.
    """
    known = version()
    if not known:
        return
    removal = REMOVE_DIR | REMOVE_FILE
    moving = REFER if known >= REFER_SINCE else 0
    attributes = struct.pack("<Q", removal | moving)
    if known >= SCOPES_SINCE:
        attributes = struct.pack("<QQQ", removal | moving, 0, SCOPE_SIGNAL)
    rules = int(_libc.syscall(CREATE_RULESET, attributes, len(attributes), 0))
    if rules < 0:
        return
    _allow(rules, "/", moving)
    for folder in removable:
        _allow(rules, folder, removal | moving)
    _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _libc.syscall(RESTRICT_SELF, rules, 0)
    os.close(rules)


def _allow(rules: int, folder: str, access: int) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        if access:
            _libc.syscall(ADD_RULE, rules, PATH_BENEATH, struct.pack("<Qi", access, descriptor), 0)
        os.close(descriptor)
