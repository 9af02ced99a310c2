"""A second oracle, for models of any size: what goes wrong, by definition, with no interleaving walked.

It shares no code with the validator, and little with ``explore``: it reads the model as plain data, lays it out at
concrete values of pos and tokens, and asks about every pair of accesses that meet and every word that is read. What it
takes from the theory is one lemma, that Run({x}) is the largest state without x (``runs``), so that a pair races
exactly if neither is in front of the other. Random tiny models are given to it and to ``explore``, which takes nothing
from any theory: the two must agree on each.

A launch of at most ``WHOLE`` steps is laid out whole. A longer one is laid out for the D steps after which no worker is
D steps ahead of another (``joined``), D being 2, 3 or 4. Where there is no such D, faults of a launch of four steps
are real, and None is the answer if there are none.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from tests.oracle.runs import Edge, Plain, Runs, joined
from tests.oracle.words import READ, STREAM, WRITE, Accesses, accesses_of, alike, holding, meet

WHOLE = 6
PAIRS = 1 << 22  # looked at together

Faults = set[str]
Launch = tuple[int, int, int]


def judge(model: Plain, *, launches: list[Launch] | None = None) -> Faults | None:
    """Kinds of faults of the model; None if nothing bounds how far its workers are apart.

    ``launches`` lists (pos0, m, S); all that differ if it is None, which only a small model can afford.
    """
    return Judge(model).decide(launches or every_launch(model))


def every_launch(model: Plain) -> list[Launch]:
    """Every pos0 and m, each with the most steps that fit."""
    low, high = model.get("tokens", (1, 1))
    context = model["max_context"]
    return [
        (pos0, m, min(model["steps_max"], (context - pos0) // m))
        for m in range(low, high + 1)
        for pos0 in range(model.get("pos_low", 0), context - m + 1)
    ]


class Judge:
    """One model under examination."""

    def __init__(self, model: Plain) -> None:
        self.model = model
        self.faults: Faults = set()
        self.buffers = accesses_of(model)
        self.done: set[Any] = set()
        self.orders: dict[Any, tuple[Runs, Runs]] = {}
        self.open = False

    def decide(self, launches: list[Launch]) -> Faults | None:
        for found in self.buffers:
            if found.kind in {"weight", "const", "input"} and found.of(WRITE).any():
                self.faults.add("const")
        for launch in launches:
            self._launch(*launch)
        return None if self.open and not self.faults else self.faults

    def _launch(self, pos0: int, m: int, steps: int) -> None:
        ends = {pos0, pos0 + (steps - 1) * m}  # bounds are linear
        if not all(found.inside(pos, m) for found in self.buffers for pos in ends):
            self.faults.add("range")
            return
        tagged = [found for found in self.buffers if found.tagged]
        edges = [(found, _edges(found, pos0, m, self.faults)) for found in tagged]
        if "tag" in self.faults:
            return
        visible, occurring = self._orders(edges, steps)
        if not (visible.complete and occurring.complete):
            self.faults.add("deadlock")
            return
        for found in self.buffers:
            key = (
                found.name,
                m if found.scales else 0,
                pos0 if found.moves else 0,
                visible.steps,
                steps > 1,
                id(visible),
            )
            if key in self.done or found.kind in {"weight", "const", "input"}:
                continue
            self.done.add(key)
            if found.tagged:
                self._tags(found, pos0, m, visible, occurring)
            else:
                self._untagged(found, pos0, m, visible)

    def _orders(self, edges: list[tuple[Accesses, list[Edge]]], steps: int) -> tuple[Runs, Runs]:
        """-> and ~> over as many steps as decide the launch."""
        fenced = [edge for found, some in edges if found.fenced for edge in some]
        every = [edge for _, some in edges for edge in some]
        key = (steps if steps <= WHOLE else 0, tuple(fenced), tuple(every))
        if key not in self.orders:
            self.orders[key] = self._window(fenced, every, steps)
        return self.orders[key]

    def _window(self, fenced: list[Edge], every: list[Edge], steps: int) -> tuple[Runs, Runs]:
        streams = [
            (int(found.task[at]), int(found.kinds[at]) - STREAM)
            for found in self.buffers
            if found.of(WRITE).any()
            for at in np.flatnonzero(found.of(STREAM)).tolist()
        ]
        for window in (steps,) if steps <= WHOLE else (2, 3, 4):
            visible = Runs(self.model, window, gates=False, tags=fenced)
            occurring = Runs(self.model, window, gates=True, tags=every)
            if not (visible.complete and occurring.complete) or window == steps:
                return visible, occurring
            if joined(visible, data=True, streams=streams) and (not every or joined(occurring, data=False, streams=[])):
                return visible, occurring
        self.open = True
        return visible, occurring

    # --- untagged buffers --------------------------------------------------------------------------------------------

    def _untagged(self, found: Accesses, pos0: int, m: int, runs: Runs) -> None:
        for delta in range(runs.steps):
            self._conflicts(found, pos0, m, runs, delta)
        if self.faults & {"race", "stream"}:
            return  # which write is the last one means something only where accesses are in order
        if found.kind == "kv":
            for step in range(runs.steps):
                self._trail(found, pos0, m, runs, step)
        else:
            last = min(2, runs.steps) - 1
            for step in range(last + 1) if found.moves else (last,):  # what does not move is read alike in each step
                self._reads(found, pos0, m, runs, step)
        if found.kind == "output":
            self._once(found, pos0, m)

    def _conflicts(self, found: Accesses, pos0: int, m: int, runs: Runs, delta: int) -> None:
        """Every pair of accesses that meet, one a write: one is in front of the other."""
        near, far = found.at(pos0, m), found.at(pos0 + delta * m, m)
        boxes = meet(near, far)
        writes = found.of(WRITE)
        height = max(1, PAIRS // len(found.task))
        for first in range(0, len(found.task), height):
            rows = np.arange(first, min(len(found.task), first + height))
            pairs = boxes[np.ix_(found.box[rows], found.box)] & (writes[rows][:, None] | writes[None, :])
            i, j = np.nonzero(pairs)
            i = rows[i]
            if not delta:
                own = found.task[i] == found.task[j]
                if (own & writes[i] & writes[j] & (i != j)).any():
                    self.faults.add("race")
                i, j = i[~own & (i < j)], j[~own & (i < j)]
            if not len(i):
                continue
            fine = _in_front(found, i, j, runs, delta)
            if not delta:
                fine |= _in_front(found, j, i, runs, 0)
            streams = found.of(STREAM)
            for at in np.flatnonzero(~fine).tolist():
                self.faults.add("stream" if streams[i[at]] or streams[j[at]] else "race")

    def _reads(self, found: Accesses, pos0: int, m: int, runs: Runs, step: int) -> None:
        """Every word that a task of ``step`` reads, against the writes of its own step and of the one before."""
        here, before = found.at(pos0 + step * m, m), found.at(pos0 + (step - 1) * m, m)
        writes, reads = np.flatnonzero(found.of(WRITE)), np.flatnonzero(found.of(READ))
        cells = found.cells(here, *([before] if step else []))
        for now, old in alike(np.stack([holding(here, cells), holding(before, cells)], axis=1)):
            readers = reads[now[found.box[reads]]]
            late = found.lag[readers] == 1
            chain = _in_turn(found, writes[now[found.box[writes]]], runs)
            seen = runs.before_read(found.task[chain][:, None], found.task[readers][None, :], 0)
            if seen[:, late].any() or not seen.any(axis=0)[~late].all():
                self.faults.add("read")
            elif len(chain):
                last = len(chain) - 1 - np.argmax(seen[::-1], axis=0)
                if (found.version[chain[last]] != found.version[readers])[~late].any():
                    self.faults.add("read")
            if step and late.any():
                chain = _in_turn(found, writes[old[found.box[writes]]], runs)
                if not len(chain) or (found.version[chain[-1]] != found.version[readers[late]]).any():
                    self.faults.add("read")

    def _trail(self, found: Accesses, pos0: int, m: int, runs: Runs, step: int) -> None:
        """Rows of a KV buffer that are read or streamed at ``step``: each was written once, in its own step."""
        if found.row_axis is None:
            self.faults.add("kv")
            return
        layouts = [found.at(pos0 + a * m, m) for a in range(step + 1)]
        writes, others = np.flatnonzero(found.of(WRITE)), np.flatnonzero(~found.of(WRITE))
        cells = found.cells(*layouts)
        held = [holding(layout, cells) for layout in layouts]
        for cell, row in enumerate(cells[:, found.row_axis].tolist()):
            mine = [writes[boxes[cell][found.box[writes]]] for boxes in held]
            if any(len(some) > 1 for some in mine):
                self.faults.add("kv")
            touch = others[held[-1][cell][found.box[others]]]
            if row < pos0 or not len(touch):
                continue
            age = (row - pos0) // m
            if age > step or not len(mine[age]):
                self.faults.add("read")
            elif age == step:
                writer = np.repeat(mine[age][:1], len(touch))
                named = (found.version[writer] == found.version[touch]) | found.of(STREAM)[touch]
                if not (_in_front(found, writer, touch, runs, 0) & named).all():
                    self.faults.add("read")

    def _once(self, found: Accesses, pos0: int, m: int) -> None:
        """Every word of an output once a step: of an axis without symbols all, else from the least to the greatest."""
        layout = low, high = found.at(pos0, m)
        boxes = found.box[found.of(WRITE)]
        if not len(boxes):
            self.faults.add("output")
            return
        least = np.where(found.symbolic(boxes), low[boxes].min(axis=0), 0)
        most = np.where(found.symbolic(boxes), high[boxes].max(axis=0), found.shape)
        cells = found.cells(layout, (least[None], most[None]))
        count = holding(layout, cells)[:, boxes].sum(axis=1)
        wanted = ((least <= cells) & (cells < most)).all(axis=1)
        if (count > 1).any() or (wanted & (count == 0)).any():
            self.faults.add("output")

    # --- tagged buffers ----------------------------------------------------------------------------------------------

    def _tags(self, found: Accesses, pos0: int, m: int, visible: Runs, occurring: Runs) -> None:
        layout = found.at(pos0, m)
        writes, reads = np.flatnonzero(found.of(WRITE)), np.flatnonzero(found.of(READ))
        for held in alike(holding(layout, found.cells(layout))):
            mine = writes[held[found.box[writes]]]
            chain = sorted((int(found.version[at]), int(found.task[at])) for at in mine)
            readers = [
                (int(found.task[at]), int(found.lag[at]), int(found.version[at]))
                for at in reads[held[found.box[reads]]]
            ]
            self._versions(chain, readers, visible, occurring)

    def _versions(
        self, chain: list[tuple[int, int]], readers: list[tuple[int, int, int]], visible: Runs, occurring: Runs
    ) -> None:
        """One word: its versions of a step, in order, with their writers; and who reads which."""
        steps = visible.steps
        written = [(a, g, x) for a in range(steps) for g, x in chain]
        at = {entry[:2]: number for number, entry in enumerate(written)}
        read: set[tuple[int, int]] = set()
        for step in range(min(2, steps)):
            for y, lag, g in readers:
                a = step - lag
                if a >= 0 and (a, g) not in at:
                    self.faults.add("deadlock")
                    continue
                read.add((a, g))
                follower = at[a, g] + 1 if a >= 0 else 0
                if follower < len(written):
                    b, _, x = written[follower]
                    if not (y == x and b == step) and not _later(y, step, x, b, occurring):
                        self.faults.add("tag order")
        for (a, g, x), (b, _, y) in itertools.pairwise(written):
            if a == 0 and (a, g) not in read and not _later(x, a, y, b, visible):
                self.faults.add("tag order")


def _later(x: int, a: int, y: int, b: int, runs: Runs) -> bool:
    """Whether y of step ``b`` writes after all of x of step ``a``."""
    return b >= a and bool(runs.before_write(np.array([x]), np.array([y]), b - a)[0])


def _edges(found: Accesses, pos0: int, m: int, faults: Faults) -> list[Edge]:
    """Tag waits of a buffer; two writers of one word and version are a fault."""
    boxes = meet(found.at(pos0, m), found.at(pos0, m))
    writes, reads = np.flatnonzero(found.of(WRITE)), np.flatnonzero(found.of(READ))
    edges: list[Edge] = []
    for at in writes.tolist():
        near = boxes[found.box[at]]
        twins = writes[near[found.box[writes]] & (found.version[writes] == found.version[at])]
        if len(twins) > 1:
            faults.add("tag")
        readers = reads[near[found.box[reads]] & (found.version[reads] == found.version[at])]
        edges += [(int(found.task[y]), int(found.task[at]), int(found.lag[y])) for y in readers]
    return edges


def _in_front(found: Accesses, i: Any, j: Any, runs: Runs, delta: int) -> Any:
    """Whether access i of step 0 is over before access j of step ``delta`` begins."""
    x, y, kind = found.task[i], found.task[j], found.kinds[j]
    # What only reads is over when its task writes; one worker's tasks write in their order.
    fine = runs.before_write(x, y, delta)
    writes = found.of(WRITE)[i]
    if len(reads := np.flatnonzero(writes & (kind == READ))):
        fine[reads] = runs.before_read(x[reads], y[reads], delta)
    if len(streams := np.flatnonzero(writes & (kind >= STREAM))):
        fine[streams] = runs.before_stream(x[streams], y[streams], kind[streams] - STREAM, delta)
    return fine


def _in_turn(found: Accesses, writes: Any, runs: Runs) -> Any:
    """These writes in the order in which a step makes them."""
    tasks = found.task[writes]
    ahead = runs.before_write(tasks[:, None], tasks[None, :], 0).sum(axis=0)
    return writes[np.argsort(ahead, kind="stable")]
