"""Entries of a work list, and the names that they get."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from amk.contracts.sources import KernelPair, Text

SOURCE_BYTES_MAX: Final = 4 << 20
NAME_LENGTH_MAX: Final = 80

MODEL: Final = "Model"
MODEL_NEW: Final = "ModelNew"


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One entry of a work list.

    Attributes
    ----------
    name
        Unique in its list, in letters, digits, ``-`` and ``_``: it may be a file's name.
    origin
        Where it was found: ``kernels/relu.py``, ``records.jsonl:12``.
    kernel
        None of an entry that cannot be read; ``why`` then says why.
    """

    name: str
    origin: str
    kernel: KernelPair | None
    why: str = ""


class WorkList(Protocol):
    """Kernels to judge, in order. It may be gone through more than once, and reads each entry when its turn comes."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Work]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts:
    """The two modules of one kernel; ``folder`` is where they lay, if anywhere."""

    reference: str
    candidate: str
    folder: str = ""


class UnreadableEntry(Exception):  # noqa: N818 - not a failure of amk: it becomes a finding
    """Why one entry cannot be judged."""


def works_of(entries: Iterable[tuple[str, str, Texts | UnreadableEntry]]) -> Iterator[Work]:
    """Works of (title, origin, texts), each under a name of its own."""
    names = _Names()
    for title, origin, entry in entries:
        name = names.take(title)
        if isinstance(entry, UnreadableEntry):
            yield Work(name=name, origin=origin, kernel=None, why=str(entry))
            continue
        paths = (entry.folder,) if entry.folder else ()
        pair = KernelPair(
            name=name,
            reference=Text(code=entry.reference, attribute=MODEL, label=f"{name}: {MODEL}", paths=paths),
            candidate=Text(code=entry.candidate, attribute=MODEL_NEW, label=f"{name}: {MODEL_NEW}", paths=paths),
        )
        yield Work(name=name, origin=origin, kernel=pair)


class _Names:
    """Names that differ from each other in more than case, so that each may be a file's on any machine."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._counts: Counter[str] = Counter()

    def take(self, title: str) -> str:
        base = re.sub(r"[^A-Za-z0-9_]+", "-", title).strip("-")[:NAME_LENGTH_MAX] or "kernel"
        name = base
        while name.lower() in self._taken:
            self._counts[base.lower()] += 1
            name = f"{base}-{self._counts[base.lower()] + 1}"
        self._taken.add(name.lower())
        return name
