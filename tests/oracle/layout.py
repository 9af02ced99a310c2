"""A launch of a tiny model, laid out: instances of tasks with the words they read, write and stream."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

Plain = dict[str, Any]
Word = tuple[str, tuple[int, ...]]


def bound(b: Any, env: dict[str, int]) -> int:
    if isinstance(b, int):
        return b
    return int(b.get("base", 0)) + sum(k * env[name] for name, k in b["terms"])


def words(region: Plain, env: dict[str, int]) -> list[Word]:
    axes = [range(bound(low, env), bound(high, env)) for low, high in region["box"]]
    return [(region["buffer"], point) for point in itertools.product(*axes)]


def names(model: Plain, symbol: str) -> bool:
    """Whether any region of the model carries ``symbol``."""
    regions = [
        access["region"]
        for queue in model["queues"]
        for node in queue
        for part in ("reads", "writes", "streams")
        for access in node.get(part, ())
    ]
    bounds = [b for region in regions for interval in region["box"] for b in interval if not isinstance(b, int)]
    return any(name == symbol for b in bounds for name, _ in b["terms"])


@dataclass
class Instance:
    """One task of one step, with its accesses as words."""

    worker: int
    step: int
    node: Plain
    bit: int = 0
    writes: list[tuple[Word, int]] = field(default_factory=list)  # untagged
    reads: set[Word] = field(default_factory=set)
    streams: list[set[Word]] = field(default_factory=list)
    units: int = 0  # number on its worker of its first stream
    # Words with a mask of acceptable writers, -1 for the launch's own: of reads, and of each stream.
    expect: list[tuple[Word, int]] = field(default_factory=list)
    expect_streams: list[list[tuple[Word, int]]] = field(default_factory=list)
    tags_written: list[tuple[Word, int]] = field(default_factory=list)
    tags_read: list[tuple[Word, int, int]] = field(default_factory=list)  # word, step, version
    clash_read: int = 0  # instances whose reads overlap these writes
    clash_write: int = 0
    clash_stream: int = 0  # streams, numbered over all workers


class Launch:
    """A launch of S steps of m rows from pos0, laid out."""

    def __init__(self, model: Plain, pos0: int, m: int, steps: int) -> None:
        self.model, self.pos0, self.m, self.steps = model, pos0, m, steps
        self.drift = model.get("drift", 0)
        self.buffers = {b["id"]: b for b in model["buffers"]}
        self.faults: set[str] = set()
        self.queues: list[list[Instance]] = []
        self.all: list[Instance] = []
        for worker, queue in enumerate(model["queues"]):
            mine = [Instance(worker, t, node) for t in range(steps) for node in queue]
            self.queues.append(mine)
            self.all += mine
        self.base = list(itertools.accumulate((len(q) for q in self.queues), initial=0))
        for number, x in enumerate(self.all):
            x.bit = 1 << number
        # The producer's own queue: the streams of its worker, one after another.
        self.producers: list[list[tuple[Instance, Plain]]] = []
        for mine in self.queues:
            units: list[tuple[Instance, Plain]] = []
            for x in mine:
                x.units = len(units)
                units += [(x, stream) for stream in x.node.get("streams", ())]
            self.producers.append(units)
        self.unit_base = list(itertools.accumulate((len(units) for units in self.producers), initial=0))
        signals = [name for queue in model["queues"] for node in queue for name in node.get("signals", ())]
        self.per_step = {name: signals.count(name) for name in signals}
        self.lay_out()

    def tagged(self, region: Plain) -> bool:
        return bool(self.buffers[region["buffer"]].get("tagged", False))

    def kv_axis(self, name: str) -> int:
        for queue in self.model["queues"]:
            for node in queue:
                for part in ("writes", "reads", "streams"):
                    for access in node.get(part, ()):
                        if access["region"]["buffer"] == name:
                            for axis, interval in enumerate(access["region"]["box"]):
                                for b in interval:
                                    if not isinstance(b, int) and any(s == "pos" for s, _ in b["terms"]):
                                        return axis
        return 0

    def lay_out(self) -> None:
        writers: dict[Word, list[tuple[Instance, int]]] = {}
        tag_writers: dict[tuple[Word, int, int], list[Instance]] = {}
        for x in self.all:
            env = {"pos": self.pos0 + x.step * self.m, "tokens": self.m}
            for write in x.node.get("writes", ()):
                version = write.get("version", 0)
                for word in words(write["region"], env):
                    if self.tagged(write["region"]):
                        x.tags_written.append((word, version))
                        tag_writers.setdefault((word, x.step, version), []).append(x)
                    else:
                        if any(word == other for other, _ in x.writes):
                            self.faults.add("race")
                        x.writes.append((word, version))
                        writers.setdefault(word, []).append((x, version))
        if any(len(found) > 1 for found in tag_writers.values()):
            self.faults.add("tag")
        axis = {b["id"]: self.kv_axis(b["id"]) for b in self.model["buffers"] if b["kind"] == "kv"}
        for name in axis:
            for word, found in writers.items():
                if word[0] == name and len({x.step for x, _ in found}) < len(found):
                    self.faults.add("kv")
        for x in self.all:
            self.lay_out_reads(x, writers, axis)
        self.clashes(writers)
        self.tag_writers = tag_writers

    def lay_out_reads(self, x: Instance, writers: dict[Word, list[tuple[Instance, int]]], axis: dict[str, int]) -> None:
        pos = self.pos0 + x.step * self.m
        env = {"pos": pos, "tokens": self.m}
        for read in x.node.get("reads", ()):
            version, lag = read.get("version", 0), read.get("lag", 0)
            for word in words(read["region"], env):
                if self.tagged(read["region"]):
                    x.tags_read.append((word, x.step - lag, version))
                    continue
                x.reads.add(word)
                kind = self.buffers[word[0]]["kind"]
                if kind == "kv":
                    x.expect.append((word, self.kv_writers(x, word, axis, writers, version)))
                elif kind not in ("weight", "const", "input"):
                    want = x.step - lag
                    found = [w.bit for w, v in writers.get(word, ()) if w.step == want and v == version]
                    x.expect.append((word, -1 if want < 0 else sum(found)))
        for stream in x.node.get("streams", ()):
            x.streams.append(set())
            x.expect_streams.append([])
            for word in words(stream["region"], env):
                if self.buffers[word[0]]["kind"] == "kv":
                    x.streams[-1].add(word)
                    x.expect_streams[-1].append((word, self.kv_writers(x, word, axis, writers, None)))

    def kv_writers(self, x: Instance, word: Word, axis: dict[str, int], writers: Any, version: int | None) -> int:
        row = word[1][axis[word[0]]]
        pos = self.pos0 + x.step * self.m
        if row < self.pos0:
            return -1
        if row >= pos + self.m:
            return 0
        step = (row - self.pos0) // self.m
        named = version if row >= pos else None
        return sum(w.bit for w, v in writers.get(word, ()) if w.step == step and named in (None, v))

    def clashes(self, writers: dict[Word, list[tuple[Instance, int]]]) -> None:
        for x in self.all:
            for word in x.reads:
                for w, _ in writers.get(word, ()):
                    w.clash_read |= x.bit
            for number, streamed in enumerate(x.streams):
                for word in streamed:
                    for w, _ in writers.get(word, ()):
                        # A task's own streams end before it writes.
                        if w is not x:
                            w.clash_stream |= 1 << (self.unit_base[x.worker] + x.units + number)
        for found in writers.values():
            for (a, _), (b, _) in itertools.permutations(found, 2):
                a.clash_write |= b.bit
        for x in self.all:
            # A task reads before it writes.
            x.clash_read &= ~x.bit
            x.clash_write &= ~x.bit
