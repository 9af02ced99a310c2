"""Random tiny models: pipelines that are right or broken in up to three places, and others without a plan."""

from __future__ import annotations

import random

from msgspec.structs import replace

from amk.ir.buffers import Buffer
from amk.ir.regions import POS, TOKENS, linear
from amk.ir.schedule import Stream
from amk.ir.tasks import Read, Write
from amk.validator.model import AccessModel, Node
from tests.oracle.mutate import MUTATIONS
from tests.oracle.pieces import NEW, PAST, read, stream, wait, write


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
            if self.rng.random() < 0.3:  # a second one, and only one of the two has the gate
                other = self.rng.randrange(self.workers)
                second = stream("kv", (other, other + 1), PAST, gate=())
                streams.insert(self.rng.randrange(2), second)
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
        Buffer(
            id="y", kind="state", dtype="f32", shape=(32,), versions=2, tagged=tags, fenced=tags and rng.random() < 0.4
        ),
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


def tagged(rng: random.Random) -> AccessModel:
    """Tasks that hand each other tagged words, some with a version or a reader too few."""
    workers = rng.choice([2, 2, 3])
    versions = rng.choice([1, 2, 2])
    fenced = rng.random() < 0.15
    buffers = (
        Buffer(id="p", kind="state", dtype="f32", shape=(1,), tagged=True, fenced=fenced),
        Buffer(id="q", kind="state", dtype="f32", shape=(2,), versions=versions, tagged=True),
        Buffer(id="x", kind="state", dtype="f32", shape=(1,)),
    )
    places = [("p", (0, 1), 0)]
    for g in range(versions):
        cuts = [(0, 2)] if rng.random() < 0.35 else [(0, 1), (1, 2)]  # whole, and perhaps read in part
        places += [("q", cut, g) for cut in cuts]
    names = [f"w{w}t{i}" for w in range(workers) for i in range(rng.choice([1, 2]) if workers == 2 else 1)]
    tidy = rng.random() < 0.6  # steps are joined, every word is written, and tasks read what earlier ones wrote
    owner = {place: rng.choice(names) for place in places if tidy or rng.random() < 0.9}
    queues: list[list[Node]] = [[] for _ in range(workers)]
    plain = rng.choice(names)
    for name in names:
        mine = [place for place, who in owner.items() if who == name]
        reads = [
            read(buffer, rng.choice([cut, cut, (0, 1), (1, 2)] if cut == (0, 2) else [cut]), version=g, lag=lag)
            for buffer, cut, g in owner
            for lag in rng.choices([0, 0, 1])
            if rng.random() < 0.35 and (buffer, cut, g) not in mine
            if not tidy or owner[buffer, cut, g] < name
        ]
        if rng.random() < 0.2:
            reads.append(read("x", (0, 1), lag=rng.choice([0, 1])))
        writes = [write(buffer, cut, version=g) for buffer, cut, g in mine]
        if name == plain and rng.random() < 0.5:
            writes.append(write("x", (0, 1)))
        waits = [wait("c", rng.choice([0, 0, len(names)]))] if rng.random() < 0.5 else []
        signals = ("c",) if tidy or rng.random() < 0.8 else ()
        if tidy:
            waits = [wait("c", 0)] if name.endswith("t0") and rng.random() < 0.9 else []
        node = Node(id=name, reads=tuple(reads), writes=tuple(writes), waits=tuple(waits), signals=signals)
        queues[int(name[1])].append(node)
    return AccessModel(
        buffers=buffers,
        queues=tuple(tuple(queue) for queue in queues),
        max_context=64,
        steps_max=rng.choice([1, 2, 2, 3]),
        drift=rng.choice([0, 0, 1]),
    )


def random_kind(rng: random.Random) -> str:
    """How ``random_model`` goes about a model; the first thing it takes from ``rng``."""
    return rng.choices(["wild", "tagged", "pipeline"], [15, 15, 70])[0]


def random_model(rng: random.Random) -> AccessModel:
    """A model, and how it came about is in the hands of ``rng``."""
    kind = random_kind(rng)
    if kind == "wild":
        return wild(rng)
    if kind == "tagged":
        return tagged(rng)
    model = Pipeline(rng).model()
    for _ in range(rng.choice([0, 0, 1, 1, 2, 3])):
        model = rng.choice(MUTATIONS)(rng, model)
    return model
