"""Accesses of a plain model by buffer, as boxes at concrete values of pos and tokens. No code of the validator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

READ, WRITE, STREAM = 0, 1, 2  # the first stream of a task; the next ones follow on

Layout = tuple[Any, Any]  # bounds [boxes, axes]: low, high


@dataclass(kw_only=True, eq=False)
class Accesses:
    """All accesses to one buffer; ``bounds`` is [boxes, axes, low or high, (base, pos, tokens)]."""

    name: str
    kind: str
    shape: Any
    tagged: bool
    fenced: bool
    bounds: Any
    box: Any
    task: Any
    kinds: Any
    lag: Any
    version: Any

    @property
    def moves(self) -> bool:
        return bool(self.bounds[..., 1].any())

    @property
    def scales(self) -> bool:
        return bool(self.bounds[..., 1:].any())

    @property
    def row_axis(self) -> int | None:
        """The axis whose bounds carry pos."""
        axes = np.flatnonzero((self.bounds[..., 1] != 0).any(axis=(0, 2)))
        return int(axes[0]) if len(axes) else None

    def of(self, kind: int) -> Any:
        return self.kinds >= STREAM if kind == STREAM else self.kinds == kind

    def symbolic(self, boxes: Any) -> Any:
        """Per axis: whether a bound of these boxes carries a symbol."""
        return (self.bounds[boxes][..., 1:] != 0).any(axis=(0, 2, 3))

    def at(self, pos: int, m: int) -> Layout:
        values = self.bounds @ np.array([1, pos, m])
        return values[..., 0], values[..., 1]

    def inside(self, pos: int, m: int) -> bool:
        low, high = self.at(pos, m)
        return bool(((low >= 0) & (low <= high) & (high <= self.shape)).all())

    def cells(self, *layouts: Layout) -> Any:
        """[cells, axes]: the least word of each cell that these layouts cut the buffer into; its words are alike."""
        cuts = [
            np.unique(np.concatenate([side[:, axis] for layout in layouts for side in layout]))[:-1]
            for axis in range(len(self.shape))
        ]
        return np.stack(np.meshgrid(*cuts, indexing="ij"), axis=-1).reshape(-1, len(cuts))


def holding(layout: Layout, cells: Any) -> Any:
    """[cells, boxes]: whether a box holds the least word of a cell."""
    low, high = layout
    return ((low[None] <= cells[:, None]) & (cells[:, None] < high[None])).all(axis=2)


def alike(held: Any) -> list[Any]:
    """Each row that occurs, once: cells that the same boxes hold are one."""
    return list({row.tobytes(): row for row in held}.values())


def meet(one: Layout, other: Layout) -> Any:
    """[boxes, boxes]: whether a box of the one layout shares a word with one of the other."""
    shared = np.minimum(one[1][:, None], other[1][None]) - np.maximum(one[0][:, None], other[0][None])
    return (shared > 0).all(axis=2)


def _row(bound: Any) -> tuple[int, int, int]:
    if isinstance(bound, int):
        return bound, 0, 0
    terms = dict(bound["terms"])
    return bound.get("base", 0), terms.get("pos", 0), terms.get("tokens", 0)


def accesses_of(model: dict[str, Any]) -> list[Accesses]:
    """The accesses to every buffer of a model; buffers that nobody touches are left out, outputs apart."""
    rows: dict[str, list[tuple[int, int, int, int, int]]] = {}
    boxes: dict[str, dict[Any, int]] = {}
    nodes = (node for queue in model["queues"] for node in queue)
    for task, node in enumerate(nodes):
        parts = [(READ, access) for access in node.get("reads", ())]
        parts += [(WRITE, access) for access in node.get("writes", ())]
        parts += [(STREAM + number, access) for number, access in enumerate(node.get("streams", ()))]
        for kind, access in parts:
            region = access["region"]
            box = tuple((_row(low), _row(high)) for low, high in region["box"])
            mine = boxes.setdefault(region["buffer"], {})
            row = (task, mine.setdefault(box, len(mine)), kind, access.get("lag", 0), access.get("version", 0))
            rows.setdefault(region["buffer"], []).append(row)
    found = []
    for buffer in model["buffers"]:
        name, rank = buffer["id"], len(buffer["shape"])
        if name not in rows and buffer["kind"] != "output":
            continue
        task, box, kinds, lag, version = np.array(rows.get(name, []), np.int64).reshape(-1, 5).T
        found.append(
            Accesses(
                name=name,
                kind=buffer["kind"],
                shape=np.array(buffer["shape"]),
                tagged=buffer.get("tagged", False),
                fenced=buffer.get("fenced", False),
                bounds=np.array(list(boxes.get(name, {})), np.int64).reshape(-1, rank, 2, 3),
                box=box,
                task=task,
                kinds=kinds,
                lag=lag,
                version=version,
            )
        )
    return found
