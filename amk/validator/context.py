"""What every order rule is given: the model, its numbers, and the orders that its window decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from amk.validator.accesses import READ, STREAM, WRITE, Accesses
from amk.validator.boxes import Domain, overlapping
from amk.validator.model import AccessModel
from amk.validator.order import Window
from amk.validator.program import Program

Edge = tuple[int, int, int]  # a tag wait: reader, writer, lag


@dataclass(frozen=True, kw_only=True)
class Context:
    """One launch under examination.

    Attributes
    ----------
    program, visible
        The order skeleton as written, and as -> sees it: with the tag waits of fenced buffers.
    sight, occurrence
        Windows of -> and ~>; the second is None when no buffer is tagged.
    accesses
        By buffer, of the buffers that can change in a launch.
    """

    model: AccessModel
    reach: Domain
    accesses: Mapping[str, Accesses]
    program: Program
    visible: Program
    sight: Window
    occurrence: Window | None
    counts: Counter[str] = field(default_factory=Counter)

    @cached_property
    def plain(self) -> list[Accesses]:
        """Accesses to untagged buffers."""
        return [found for found in self.accesses.values() if not found.buffer.tagged]

    @cached_property
    def tagged(self) -> list[Accesses]:
        """Accesses to tagged buffers."""
        return [found for found in self.accesses.values() if found.buffer.tagged]


def mattering_streams(accesses: Mapping[str, Accesses], written: frozenset[str]) -> frozenset[tuple[int, int]]:
    """Streams, as (task, number), from buffers that are written in the launch."""
    return frozenset(
        (task, kind - STREAM)
        for name, found in accesses.items()
        if name in written
        for kind in found.stream_kinds
        for task in found.task[found.of(kind)].tolist()
    )


def tag_edges(accesses: Mapping[str, Accesses], reach: Domain, *, fenced_only: bool) -> list[Edge]:
    """(reader, writer, lag) for every tagged read and every writer of a word and version of it."""
    return [
        edge
        for found in accesses.values()
        if found.buffer.tagged and (found.buffer.fenced or not fenced_only)
        for edge in _edges(found, reach)
    ]


def by_tag_waits(accesses: Mapping[str, Accesses], reach: Domain) -> list[Domain]:
    """The domain in parts; within one, every number of rows makes a tagged read wait for the same writers.

    A reader of words [0, tokens) waits for the writer of word 3 in steps of four rows, and is not ordered behind it in
    steps of one.
    """
    if not any(found.buffer.tagged and found.table.scales for found in accesses.values()):
        return [reach]
    parts: dict[tuple[frozenset[Edge], ...], list[int]] = {}
    for m in reach.tokens:
        one = replace(reach, tokens=(m,))
        waits = tuple(frozenset(tag_edges(accesses, one, fenced_only=only)) for only in (False, True))
        parts.setdefault(waits, []).append(m)
    return [replace(reach, tokens=tuple(tokens)) for tokens in parts.values()]


def _edges(found: Accesses, reach: Domain) -> list[Edge]:
    readers: dict[int, list[int]] = {}
    writers: dict[tuple[int, int], list[int]] = {}
    for number in found.of(READ).tolist():
        readers.setdefault(int(found.box[number]), []).append(number)
    for number in found.of(WRITE).tolist():
        key = int(found.box[number]), int(found.version[number])
        writers.setdefault(key, []).append(int(found.task[number]))
    pairs = overlapping(found.table, np.unique(found.box[found.of(READ)]), found.write_boxes, 0, reach)
    return [
        (int(found.task[number]), writer, int(found.lag[number]))
        for read_box, write_box in zip(*(side.tolist() for side in pairs), strict=True)
        for number in readers[read_box]
        for writer in writers.get((write_box, int(found.version[number])), ())
    ]
