"""Random tiny models: pipelines that are right or broken in up to three places, and wild ones without a plan."""

from __future__ import annotations

import random
from collections.abc import Callable

from msgspec.structs import replace

from amk.ir.buffers import Buffer
from amk.ir.regions import POS, TOKENS, Box, Region, linear
from amk.ir.schedule import Stream, Wait
from amk.ir.tasks import Read, Write
from amk.validator.model import AccessModel, Node

NEW = (linear(**{POS: 1}), linear(**{POS: 1, TOKENS: 1}))
PAST = (0, linear(**{POS: 1}))
SEEN = (0, linear(**{POS: 1, TOKENS: 1}))


def read(buffer: str, *box: tuple, version: int = 0, lag: int = 0) -> Read:
    return Read(region=Region(buffer=buffer, box=box), version=version, lag=lag)


def write(buffer: str, *box: tuple, version: int = 0) -> Write:
    return Write(region=Region(buffer=buffer, box=box), version=version)


def wait(counter: str, threshold: int) -> Wait:
    return Wait(counter=counter, threshold=threshold)


def stream(buffer: str, *box: tuple, gate: tuple[Wait, ...] = ()) -> Stream:
    return Stream(region=Region(buffer=buffer, box=box), gate=gate)


class Pipeline:
    """Hops over a few workers, in order by counters: a tiny decoder."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.workers = rng.choice([1, 2, 2, 2, 3])
        self.hops = rng.choice([1, 2, 2, 3]) if self.workers < 3 else rng.choice([1, 1, 2])
        self.steps = rng.choice([1, 2, 2, 3]) if self.workers < 3 else rng.choice([1, 2, 2])
        self.queues: list[list[Node]] = [[] for _ in range(self.workers)]
        self.buffers: dict[str, Buffer] = {}
        self.one_counter = rng.random() < 0.15
        self.signals: dict[str, int] = {}
        self.in_place = rng.random() < 0.3

    def counter(self, hop: int) -> str:
        return "c" if self.one_counter else f"c{hop}"

    def model(self) -> AccessModel:
        rng, width = self.rng, self.workers
        members = [sorted(rng.sample(range(width), rng.randint(1, width))) for _ in range(self.hops)]
        kv_hop = rng.randrange(self.hops) if rng.random() < 0.35 else -1
        tag_hop = rng.randrange(self.hops) if rng.random() < 0.3 else -1
        total, thresholds = 0, []
        for hop in range(self.hops):
            total += len(members[hop])
            thresholds.append(total if self.one_counter else len(members[hop]))
        name = [f"b{0 if self.in_place and hop != tag_hop else hop}" for hop in range(self.hops)]
        version = [name[:hop].count(name[hop]) if self.in_place and hop != tag_hop else 0 for hop in range(self.hops)]
        for hop in range(self.hops):
            self.buffers[name[hop]] = Buffer(
                id=name[hop],
                kind="state",
                dtype="f32",
                shape=(width,),
                versions=self.hops,
                tagged=hop == tag_hop,
                fenced=hop == tag_hop and rng.random() < 0.2,
            )
        for hop in range(self.hops):
            last = (hop - 1) % self.hops
            threshold = thresholds[last] if hop else 0
            for worker in members[hop]:
                writes, streams = [], []
                reads = [
                    read(name[last], (source, source + 1), version=version[last], lag=0 if hop else 1)
                    for source in members[last]
                ]
                writes.append(write(name[hop], (worker, worker + 1), version=version[hop]))
                waits = [wait(self.counter(last), threshold)]
                if hop == kv_hop:
                    self.kv(worker, writes, reads, streams)
                if last == tag_hop and rng.random() < 0.6:
                    waits = []
                node = Node(
                    id=f"h{hop}w{worker}",
                    reads=tuple(reads),
                    writes=tuple(writes),
                    streams=tuple(streams),
                    waits=tuple(waits),
                    signals=(self.counter(hop),),
                )
                self.queues[worker].append(node)
        self.join(members)
        moving = kv_hop >= 0
        m = rng.choice([(1, 1), (1, 1), (1, 2), (2, 2)]) if moving else (1, 1)
        return AccessModel(
            buffers=tuple(self.buffers.values()),
            queues=tuple(tuple(queue) for queue in self.queues),
            max_context=m[1] * self.steps + rng.choice([0, 0, 1]) if moving else 64,
            steps_max=self.steps,
            tokens=m,
            drift=rng.choice([0, 0, 1, 1, 2]),
        )

    def kv(self, worker: int, writes: list[Write], reads: list[Read], streams: list[Stream]) -> None:
        self.buffers["kv"] = Buffer(id="kv", kind="kv", dtype="f32", shape=(self.workers, 16))
        head = (worker, worker + 1)
        writes.append(write("kv", head, NEW))
        gate = (wait(self.counter(self.hops - 1), 0),) if self.rng.random() < 0.8 else ()
        if self.rng.random() < 0.7:
            streams.append(stream("kv", head, PAST, gate=gate))
        else:
            reads.append(read("kv", head, PAST))

    def join(self, members: list[list[int]]) -> None:
        """Workers that take no part in the last hop join the step by a task of their own, or not at all."""
        if self.rng.random() < 0.3:
            return
        last = self.counter(self.hops - 1)
        for worker, queue in enumerate(self.queues):
            if queue and worker not in members[-1] and self.rng.random() < 0.9:
                queue[-1] = replace(queue[-1], signals=(*queue[-1].signals, last))
        # thresholds that join the last hop within the step are none; lag-0 waits on it do not exist
        for queue in self.queues:
            for at, node in enumerate(queue):
                if self.rng.random() < 0.5 and not any(w.threshold == 0 for w in node.waits) and at == 0:
                    queue[at] = replace(node, waits=(wait(last, 0), *node.waits))


def _pick(rng: random.Random, model: AccessModel) -> tuple[int, int] | None:
    places = [(w, i) for w, queue in enumerate(model.queues) for i in range(len(queue))]
    return rng.choice(places) if places else None


def _with(model: AccessModel, worker: int, index: int, node: Node) -> AccessModel:
    queue = list(model.queues[worker])
    queue[index] = node
    queues = list(model.queues)
    queues[worker] = tuple(queue)
    return replace(model, queues=tuple(queues))


def _on_node(change: Callable[[random.Random, Node], Node]) -> Callable[[random.Random, AccessModel], AccessModel]:
    def apply(rng: random.Random, model: AccessModel) -> AccessModel:
        place = _pick(rng, model)
        if place is None:
            return model
        worker, index = place
        return _with(model, worker, index, change(rng, model.queues[worker][index]))

    return apply


def _drop_wait(rng: random.Random, node: Node) -> Node:
    waits = list(node.waits)
    if waits:
        waits.pop(rng.randrange(len(waits)))
    return replace(node, waits=tuple(waits))


def _shift_threshold(rng: random.Random, node: Node) -> Node:
    by = rng.choice([-2, -1, -1, 1, 1])
    waits = list(node.waits)
    if waits:
        at = rng.randrange(len(waits))
        waits[at] = replace(waits[at], threshold=waits[at].threshold + by)
    return replace(node, waits=tuple(waits))


def _drop_signal(rng: random.Random, node: Node) -> Node:
    signals = list(node.signals)
    if signals:
        signals.pop(rng.randrange(len(signals)))
    return replace(node, signals=tuple(signals))


def _double_signal(rng: random.Random, node: Node) -> Node:
    return replace(node, signals=node.signals + node.signals[:1])


def _shift_lag(rng: random.Random, node: Node) -> Node:
    reads = list(node.reads)
    plain = [at for at, r in enumerate(reads) if r.region.buffer != "kv"]
    if plain:
        at = rng.choice(plain)
        reads[at] = replace(reads[at], lag=1 - reads[at].lag)
    return replace(node, reads=tuple(reads))


def _gate_to_wait(rng: random.Random, node: Node) -> Node:
    gates = tuple(w for s in node.streams for w in s.gate)
    return replace(node, waits=node.waits + gates, streams=tuple(replace(s, gate=()) for s in node.streams))


def _wait_to_gate(rng: random.Random, node: Node) -> Node:
    if not node.streams:
        return node
    return replace(node, waits=(), streams=tuple(replace(s, gate=s.gate + node.waits) for s in node.streams))


def _stretch_past(rng: random.Random, node: Node) -> Node:
    """Stream or read this step's rows too."""

    def wide(region: Region) -> Region:
        box: Box = tuple(SEEN if interval == PAST else interval for interval in region.box)
        return replace(region, box=box)

    return replace(
        node,
        streams=tuple(replace(s, region=wide(s.region)) for s in node.streams),
        reads=tuple(replace(r, region=wide(r.region)) for r in node.reads),
    )


def _move_word(rng: random.Random, model: AccessModel) -> AccessModel:
    place = _pick(rng, model)
    if place is None:
        return model
    worker, index = place
    node = model.queues[worker][index]
    writes = list(node.writes)
    plain = [at for at, w in enumerate(writes) if w.region.buffer != "kv"]
    if plain:
        at = rng.choice(plain)
        low = rng.randrange(len(model.queues))
        writes[at] = replace(writes[at], region=replace(writes[at].region, box=((low, low + 1),)))
    return _with(model, worker, index, replace(node, writes=tuple(writes)))


def _more_reads(rng: random.Random, model: AccessModel) -> AccessModel:
    place = _pick(rng, model)
    if place is None:
        return model
    worker, index = place
    node = model.queues[worker][index]
    buffer = rng.choice([b for b in model.buffers if b.kind != "kv"])
    low = rng.randrange(buffer.shape[0])
    new = read(buffer.id, (low, low + 1), version=rng.randrange(buffer.versions), lag=rng.choice([0, 0, 1]))
    return _with(model, worker, index, replace(node, reads=(*node.reads, new)))


def _wider_word(rng: random.Random, model: AccessModel) -> AccessModel:
    place = _pick(rng, model)
    if place is None:
        return model
    worker, index = place
    node = model.queues[worker][index]
    size = len(model.queues)
    writes = tuple(
        w if w.region.buffer == "kv" else replace(w, region=replace(w.region, box=((0, size),))) for w in node.writes
    )
    return _with(model, worker, index, replace(node, writes=writes))


def _swap(rng: random.Random, model: AccessModel) -> AccessModel:
    long = [w for w, queue in enumerate(model.queues) if len(queue) > 1]
    if not long:
        return model
    worker = rng.choice(long)
    queue = list(model.queues[worker])
    at = rng.randrange(len(queue) - 1)
    queue[at], queue[at + 1] = queue[at + 1], queue[at]
    queues = list(model.queues)
    queues[worker] = tuple(queue)
    return replace(model, queues=tuple(queues))


def _move(rng: random.Random, model: AccessModel) -> AccessModel:
    place = _pick(rng, model)
    if place is None or len(model.queues) < 2:
        return model
    worker, index = place
    queues = [list(queue) for queue in model.queues]
    node = queues[worker].pop(index)
    other = rng.choice([w for w in range(len(queues)) if w != worker])
    queues[other].insert(rng.randint(0, len(queues[other])), node)
    return replace(model, queues=tuple(tuple(queue) for queue in queues))


def _other_version(rng: random.Random, model: AccessModel) -> AccessModel:
    place = _pick(rng, model)
    if place is None:
        return model
    worker, index = place
    node = model.queues[worker][index]
    writes = list(node.writes)
    plain = [at for at, w in enumerate(writes) if w.region.buffer != "kv"]
    if plain:
        at = rng.choice(plain)
        versions = model.buffer[writes[at].region.buffer].versions
        writes[at] = replace(writes[at], version=rng.randrange(versions))
    return _with(model, worker, index, replace(node, writes=tuple(writes)))


MUTATIONS: tuple[Callable[[random.Random, AccessModel], AccessModel], ...] = (
    _on_node(_drop_wait),
    _on_node(_shift_threshold),
    _on_node(_drop_signal),
    _on_node(_double_signal),
    _on_node(_shift_lag),
    _on_node(_gate_to_wait),
    _on_node(_wait_to_gate),
    _on_node(_stretch_past),
    _move_word,
    _more_reads,
    _wider_word,
    _swap,
    _move,
    _other_version,
)


# Words of a wild model: fixed ones, and ones that move with the step, so that they meet at other distances.
FIXED = ((0, 1), (1, 2), (0, 2), (0, linear(**{TOKENS: 1})))
MOVING = (
    NEW,
    (linear(**{POS: 1}), linear(1, **{POS: 1})),
    (linear(1, **{POS: 1}), linear(2, **{POS: 1})),
    (linear(**{POS: 1}), linear(2, **{POS: 1})),
    (0, linear(1, **{POS: 1})),
    (2, 4),
    (linear(**{POS: 2}), linear(1, **{POS: 2})),
)


def wild(rng: random.Random) -> AccessModel:
    """No plan at all: a few tasks with random waits, signals and words."""
    workers = rng.choice([2, 2, 3])
    counters = ["p", "q"][: rng.choice([1, 2, 2])]
    tags = rng.random() < 0.3
    moving = rng.random() < 0.3
    tokens = rng.choice([(1, 1), (1, 2), (2, 2)])
    boxes = {"x": MOVING if moving else FIXED, "y": FIXED if tags or not moving else MOVING}
    buffers = (
        Buffer(id="x", kind="state", dtype="f32", shape=(32,), versions=2),
        Buffer(id="y", kind="state", dtype="f32", shape=(32,), versions=2, tagged=tags),
    )
    queues = []
    for worker in range(workers):
        queue = []
        for index in range(rng.choice([1, 1, 2]) if workers == 2 else 1):
            waits = [
                wait(rng.choice(counters), rng.choice([-1, 0, 0, 1, 1, 2, 2, 3]))
                for _ in range(rng.choice([0, 1, 1, 2]))
            ]
            signals = [rng.choice(counters) for _ in range(rng.choice([0, 1, 1, 2]))]
            reads, writes = [], []
            for _ in range(rng.choice([0, 1])):
                name = rng.choice("xy")
                reads.append(read(name, rng.choice(boxes[name]), lag=rng.choice([0, 1])))
            for _ in range(rng.choice([0, 1, 1])):
                name = rng.choice("xy")
                writes.append(write(name, rng.choice(boxes[name])))
            queue.append(
                Node(
                    id=f"w{worker}t{index}",
                    reads=tuple(reads),
                    writes=tuple(writes),
                    waits=tuple(waits),
                    signals=tuple(signals),
                )
            )
        queues.append(tuple(queue))
    steps = rng.choice([1, 2, 3, 3, 4, 5, 6] if sum(map(len, queues)) < 4 else [1, 2, 2, 3])
    return AccessModel(
        buffers=buffers,
        queues=tuple(queues),
        max_context=tokens[1] * steps + rng.choice([0, 1]) if moving else 64,
        steps_max=steps,
        tokens=tokens,
        drift=rng.choice([0, 0, 1, 2]),
    )


def random_model(rng: random.Random) -> AccessModel:
    """A model, and how it came about is in the hands of ``rng``."""
    if rng.random() < 0.2:
        return wild(rng)
    model = Pipeline(rng).model()
    for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
        model = rng.choice(MUTATIONS)(rng, model)
    return model
