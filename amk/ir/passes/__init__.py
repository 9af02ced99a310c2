"""The passes, one a file, and the line they stand in. A pass is a frozen dataclass whose fields are its options."""

from __future__ import annotations

from dataclasses import dataclass, field

from amk.ir.graph import Graph
from amk.ir.passes.assign import Assign
from amk.ir.passes.fuse import Fuse
from amk.ir.passes.sync import Sync
from amk.ir.passes.tile import Tile
from amk.ir.schedule import Schedule
from amk.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Every option that turns a graph into a schedule: what a search may vary."""

    tile: Tile
    fuse: Fuse = field(default_factory=Fuse)
    assign: Assign = field(default_factory=Assign)
    sync: Sync = field(default_factory=Sync)

    def run(self, graph: Graph, target: Target) -> Schedule:
        """Lower ``graph`` for ``target``; raises what the passes raise."""
        program = self.fuse.run(graph)
        tiled = self.tile.run(program, target)
        assigned = self.assign.run(tiled, target)
        return self.sync.run(assigned, target)
