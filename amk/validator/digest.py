"""Which sources decide a verdict, and the one digest over them that certificates carry.

They are the sources of this room and, outside it, all that it imports to know what a schedule means; errors only say
it. ``frozen`` holds them against the digests that were committed.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

ROOM: Final = Path(__file__).resolve().parent
PACKAGE: Final = ROOM.parent

READ: Final = (
    "ir/__init__.py",
    "ir/accesses.py",
    "ir/activation.py",
    "ir/attention.py",
    "ir/buffers.py",
    "ir/gemv.py",
    "ir/record.py",
    "ir/regions.py",
    "ir/schedule.py",
    "ir/tasks.py",
    "target.py",
)


def sources() -> dict[str, str]:
    """sha256, in hex, of each source, by its path in the package; how a line ends does not count."""
    files = sorted(ROOM.rglob("*.py")) + [PACKAGE / name for name in READ]
    texts = {path.relative_to(PACKAGE).as_posix(): path.read_bytes().replace(b"\r\n", b"\n") for path in files}
    return {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}


@cache
def validator_digest() -> str:
    """sha256, in hex, over all of ``sources``: what a certificate means by "this validator"."""
    lines = (f"{digest}  {name}\n" for name, digest in sources().items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()
