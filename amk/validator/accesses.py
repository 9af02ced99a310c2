"""Accesses by buffer: who touches which box, and how. Boxes are numbered once per buffer; equal boxes are one class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from amk.ir.buffers import Buffer
from amk.ir.regions import Box, Region, show_region
from amk.validator.boxes import BoxTable
from amk.validator.model import AccessModel, Node
from amk.validator.program import Ints

READ: Final = 0
WRITE: Final = 1
STREAM: Final = 2  # the first stream of a task; the next ones follow on


def verb(kind: int) -> str:
    """What a task does with the words of an access of this kind."""
    return ("reads", "writes", "streams")[min(kind, STREAM)]


# Set before a launch and never written in it: always there, whoever reads.
FIXED_KINDS: Final = frozenset({"weight", "const", "input"})


@dataclass(frozen=True, kw_only=True, eq=False)
class Accesses:
    """All accesses to one buffer; arrays are per access, in task order."""

    buffer: Buffer
    table: BoxTable
    task: Ints
    box: Ints
    kind: Ints
    lag: Ints
    version: Ints

    def of(self, kind: int) -> Ints:
        """Numbers of the accesses of this kind."""
        return np.flatnonzero(self.kind == kind)

    @cached_property
    def stream_kinds(self) -> list[int]:
        """The kinds of stream that occur."""
        return [kind for kind in np.unique(self.kind).tolist() if kind >= STREAM]

    @cached_property
    def write_boxes(self) -> Ints:
        """Distinct boxes that are written."""
        return np.unique(self.box[self.of(WRITE)])

    def show(self, box: int) -> str:
        """A box as a person writes it."""
        return show_region(Region(buffer=self.buffer.id, box=self.table.boxes[box]))


class _Collector:
    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.boxes: dict[Box, int] = {}
        self.rows: list[tuple[int, int, int, int, int]] = []

    def add(self, task: int, region: Region, kind: int, lag: int, version: int) -> None:
        box = self.boxes.setdefault(region.box, len(self.boxes))
        self.rows.append((task, box, kind, lag, version))

    def finish(self) -> Accesses:
        columns = np.array(self.rows, np.int64).reshape(len(self.rows), 5).T
        task, box, kind, lag, version = columns
        table = BoxTable(self.boxes, len(self.buffer.shape))
        return Accesses(buffer=self.buffer, table=table, task=task, box=box, kind=kind, lag=lag, version=version)


def _each(node: Node) -> Iterator[tuple[Region, int, int, int]]:
    for read in node.reads:
        yield read.region, READ, read.lag, read.version
    for write in node.writes:
        yield write.region, WRITE, 0, write.version
    for number, stream in enumerate(node.streams):
        yield stream.region, STREAM + number, 0, 0


def collect(model: AccessModel) -> dict[str, Accesses]:
    """Accesses to every buffer that can change in a launch, by buffer id."""
    changing = {
        name: _Collector(buffer)
        for name, buffer in model.buffer.items()
        if buffer.kind not in FIXED_KINDS or name in model.written
    }
    for task, node in enumerate(model.nodes()):
        for region, kind, lag, version in _each(node):
            if collector := changing.get(region.buffer):
                collector.add(task, region, kind, lag, version)
    return {name: collector.finish() for name, collector in changing.items() if collector.rows}
