"""The validator is frozen: ``FROZEN`` holds the digest of every source that decides a verdict, one a line.

A change of any of them changes what certificates bind, so it is made on purpose or not at all:

    python -m amk.validator.frozen             which sources differ from FROZEN? Exit code 1 if any does
    python -m amk.validator.frozen --write     freeze them as they are
"""

from __future__ import annotations

import sys
from typing import Final

from amk.validator.digest import ROOM, sources, validator_digest

FROZEN: Final = ROOM / "FROZEN"
REFRESH: Final = "python -m amk.validator.frozen --write"


def text() -> str:
    """``FROZEN`` as the sources are now: the digest over all of them, then each."""
    lines = [f"{validator_digest()}  validator", *(f"{digest}  {name}" for name, digest in sources().items())]
    return "\n".join(lines) + "\n"


def changed() -> list[str]:
    """What is not as ``FROZEN`` says: sources that are changed, new or gone, and the digest over them."""
    frozen = set(FROZEN.read_text(encoding="utf-8").splitlines()) if FROZEN.exists() else set()
    return sorted({line.split(maxsplit=1)[-1] for line in frozen ^ set(text().splitlines())})


def main(arguments: list[str]) -> int:
    """The command above."""
    if arguments not in ([], ["--write"]):
        sys.stderr.write(f"usage: {REFRESH.replace('--write', '[--write]')}\n")
        return 2
    if arguments:
        FROZEN.write_text(text(), encoding="utf-8")
    differing = changed()
    for name in differing:
        sys.stdout.write(f"{name} is not as FROZEN says\n")
    if differing:
        sys.stdout.write(f"if that is meant: {REFRESH}\n")
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
