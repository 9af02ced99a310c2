"""Traps: what a simpler rule takes for safe, or for unsafe; each with the nearest neighbour across the line."""

from __future__ import annotations

from msgspec.structs import replace

from amk.ir.buffers import Buffer
from amk.ir.regions import POS, Interval, linear
from amk.validator import AccessModel, Node
from tests.validator.cases import case
from tests.validator.notation import AT_POS, NEW, ONE, PAST, ROWS, SEEN, kv, model, read, state, stream, task, write


def _loop(reads: list, *, drift: int, waits: str = "") -> AccessModel:
    return model(
        [task("W", waits="c>=0", signals="d", writes=[write("a")]), task("R", waits=waits, signals="c", reads=reads)],
        buffers=[state("a")],
        drift=drift,
    )


case(
    "drift-reads-own-write", "AMK-V301", "a warp of R runs ahead of the warp that writes a", _loop([read("a")], drift=1)
)
case("no-drift", "", "a block barrier after every task", _loop([read("a")], drift=0))
case("drift-behind-wait", "", "R waits for W's own signal", _loop([read("a")], drift=1, waits="d>=1"))

_in_place = [
    [
        task("init", waits="z>=0", signals="i", writes=[write("h", v=0)]),
        task("update", waits="i>=1", signals="u", reads=[read("h", v=0)], writes=[write("h", v=1)]),
    ],
]
for name, code, version, why in (
    ("version-latest", "", 1, "the reader names the last write before it"),
    ("version-stale", "AMK-V303", 0, "covered, ordered, and still the wrong write"),
):
    reader = task("use", waits="u>=1", signals="z", reads=[read("h", v=version)])
    case(name, code, why, model(*_in_place, [reader], buffers=[state("h", versions=2)]))

case(
    "coverage-hole",
    "AMK-V304",
    "the last of three words is written by nobody",
    model(
        [task("W", waits="c>=0", signals="d", writes=[write("a", (0, 2))])],
        [task("R", waits="d>=1", signals="c", reads=[read("a", (0, 3))])],
        buffers=[state("a", 3)],
    ),
)
case(
    "coverage-rows",
    "",
    "as many rows as the step has, for every number of rows",
    model(
        [task("W", waits="c>=0", signals="d", writes=[write("a", ROWS)])],
        [task("R", waits="d>=1", signals="c", reads=[read("a", ROWS)])],
        buffers=[state("a", 8)],
        tokens=(1, 8),
        context=64,
    ),
)
case(
    "lag-is-not-there",
    "AMK-V303",
    "named as the last step's, but this step's write comes first",
    model(
        [task("W", waits="c>=0", signals="d", writes=[write("a")])],
        [task("R", waits="d>=1", signals="c", reads=[read("a", lag=1)])],
        buffers=[state("a")],
    ),
)
case(
    "lag-before-rewrite",
    "",
    "read before this step's write: the last step's",
    model(
        [task("R", waits="c>=0", signals="d", reads=[read("a", lag=1)])],
        [task("W", waits="d>=1", signals="c", writes=[write("a")])],
        buffers=[state("a")],
    ),
)

_tag = [state("q", tagged=True)]
case(
    "tag-overwritten",
    "AMK-V307",
    "nothing keeps the next step's epoch from replacing the one still waited for",
    model([task("W", writes=[write("q")])], [task("R", reads=[read("q")])], buffers=_tag),
)
case(
    "tag-acknowledged",
    "",
    "the writer waits for the reader of the step before",
    model([task("W", waits="r>=0", writes=[write("q")])], [task("R", signals="r", reads=[read("q")])], buffers=_tag),
)
case(
    "tag-acknowledged-by-tag",
    "",
    "the acknowledgement may itself be a tag",
    model(
        [task("W", reads=[read("p", lag=1)], writes=[write("q")])],
        [task("R", reads=[read("q")], writes=[write("p")])],
        buffers=[state("q", tagged=True), state("p", tagged=True)],
    ),
)
case(
    "tag-unread-unordered",
    "AMK-V308",
    "two stores of one word by two workers, and only tags between them",
    model(
        [task("W", reads=[read("r", lag=1)], writes=[write("q", v=0), write("p")])],
        [task("V", reads=[read("p")], writes=[write("q", v=1), write("r")])],
        buffers=[state("q", versions=2, tagged=True), state("p", tagged=True), state("r", tagged=True)],
    ),
)
case(
    "fenced-tag-publishes",
    "",
    "a release of the word and an acquire of the poll order other data too",
    model(
        [task("W", waits="r>=0", writes=[write("a"), write("q")])],
        [task("R", signals="r", reads=[read("q"), read("a")])],
        buffers=[state("a"), state("q", tagged=True, fenced=True)],
    ),
)
case(
    "plain-tag-publishes",
    "AMK-V301",
    "the same with a relaxed tag",
    model(
        [task("W", waits="r>=0", writes=[write("a"), write("q")])],
        [task("R", signals="r", reads=[read("q"), read("a")])],
        buffers=[state("a"), state("q", tagged=True)],
    ),
)

for name, code, rows, why in (
    ("tag-of-a-row-that-may-not-be", "AMK-V301", ROWS, "in steps of one row R does not wait for the word of row 3"),
    ("tag-of-every-row", "", (0, 4), "R waits for all four words, however many rows a step has"),
):
    case(
        name,
        code,
        why,
        model(
            [task("W0", waits="r>=0", writes=[write("q", (0, 3))])],
            [task("W3", waits="r>=0", writes=[write("a"), write("q", (3, 4))])],
            [task("R", signals="r", reads=[read("q", rows), read("a")])],
            buffers=[state("a"), state("q", 4, tagged=True, fenced=True)],
            tokens=(1, 4),
            steps=2,
        ),
    )

_heads = [kv("KV", 2, 64)]


def _cache(rows: tuple, heads: tuple) -> AccessModel:
    return model(
        [task("A", waits="d>=0", signals="c", writes=[write("KV", heads, NEW)])],
        [task("R", waits="c>=1", signals="d", reads=[read("KV", (0, 2), rows)])],
        buffers=_heads,
        tokens=(1, 2),
        context=9,
    )


case("kv-trail", "", "rows [0, pos+tokens) by the trail of earlier steps and this step's block", _cache(SEEN, (0, 2)))
case("kv-half-the-heads", "AMK-V305", "one of two heads is never appended", _cache(SEEN, ONE))
case(
    "not-joined",
    "AMK-V390",
    "the writer may be any number of steps ahead of the reader, so no window decides",
    model(
        [task("W", signals="c", writes=[write("X", AT_POS)])],
        [task("R", waits="c>=1", reads=[read("X", AT_POS)])],
        buffers=[state("X", 2000)],
        steps=1000,
        context=2000,
    ),
)
case(
    "not-joined-few-steps",
    "",
    "the same in a launch of four steps, all unrolled",
    model(
        [task("W", signals="c", writes=[write("X", AT_POS)])],
        [task("R", waits="c>=1", reads=[read("X", AT_POS)])],
        buffers=[state("X", 2000)],
        steps=4,
        context=2000,
    ),
)
case(
    "not-joined-apart",
    "",
    "nothing joins the workers, but they share no word",
    model(
        [task("W", writes=[write("a", ONE)])],
        [task("R", reads=[read("w", ONE)])],
        buffers=[state("a"), Buffer(id="w", kind="const", dtype="f32", shape=(1,))],
        steps=1000,
    ),
)
case(
    "queue-order-is-enough",
    "",
    "one worker, a step's end far from the next step's read",
    model([task("W", waits="c>=0", signals="c", writes=[write("a")])], buffers=[state("a")], steps=1000),
)

# --- launch state, regions, outputs ----------------------------------------------------------------------------------


def _const(kind: str) -> AccessModel:
    return model(
        [task("W", waits="c>=0", signals="c", writes=[write("w")])],
        buffers=[Buffer(id="w", kind=kind, dtype="f32", shape=(1,))],
    )


case("input-written", "AMK-V318", "the host relies on its input being there at the next launch", _const("input"))
case("state-written", "", "a state buffer is there to be written", _const("state"))


def _region(size: int) -> AccessModel:
    ring = [write("X", NEW)]
    return model(
        [task("W", waits="c>=0", signals="c", writes=ring)], buffers=[state("X", size)], context=9, tokens=(1, 2)
    )


case("region-past-the-end", "AMK-V315", "the last step of a launch would write row 8 of 8", _region(8))
case("region-to-the-end", "", "one row more", _region(9))


def _output(*intervals: tuple[int, int]) -> AccessModel:
    tasks = [task(f"W{at}", waits="c>=0", signals="c", writes=[write("out", cut)]) for at, cut in enumerate(intervals)]
    return model(tasks, buffers=[Buffer(id="out", kind="output", dtype="f32", shape=(4,))])


case("output-whole", "", "each word once", _output((0, 2), (2, 4)))
case("output-hole", "AMK-V309", "the host would read a word of an earlier step", _output((0, 2), (3, 4)))
case("output-twice", "AMK-V309", "in order, and still one write too many", _output((0, 3), (2, 4)))

# --- windows, gates and more -----------------------------------------------------------------------------------------

OLD: Interval = (0, linear(-2, **{POS: 1}))  # all rows but those of the last two steps of one row


def _far(queue: list[Node], *, drift: int, heads: list[Node] | None = None) -> AccessModel:
    queues = [queue] if heads is None else [heads, queue]
    return replace(model(*queues, buffers=[kv()], steps=5, context=8, drift=drift), pos_low=2)


def _self_reader(drift: int) -> AccessModel:
    return _far([task("W", reads=[read("KV", OLD)], writes=[write("KV", NEW)])], drift=drift)


case(
    "drift-of-three-steps",
    "AMK-V301",
    "warps drift by three tasks, and a step has one: the row of three steps ago",
    _self_reader(3),
)
case("drift-of-two-steps", "", "the nearest row that is read is three steps old", _self_reader(2))


def _old_stream(gate: str) -> AccessModel:
    heads = [task("append", waits="done>=0", signals="kv", writes=[write("KV", NEW)])]
    queue = [task("attention", waits="kv>=1", signals="done", streams=[stream("KV", OLD, gate=gate)])]
    return _far(queue, drift=0, heads=heads)


case(
    "stream-gate-three-back",
    "AMK-V310",
    "the gate lets the stream begin before the row of three steps ago",
    _old_stream("kv>=-3"),
)
case("stream-gate-two-back", "", "the gate joins the step of the newest row that is streamed", _old_stream("kv>=-2"))

case(
    "gate-orders-no-read",
    "AMK-V301",
    "what the producer waited for, the consumers have not acquired",
    model(
        [task("append", waits="done>=0", signals="kv", writes=[write("row"), write("KV", NEW)])],
        [task("attention", signals="done", reads=[read("row")], streams=[stream("KV", SEEN, gate="kv>=1")])],
        buffers=[state("row"), kv()],
    ),
)
case(
    "gate-and-wait",
    "",
    "producer and consumers each wait",
    model(
        [task("append", waits="done>=0", signals="kv", writes=[write("row"), write("KV", NEW)])],
        [
            task(
                "attention",
                waits="kv>=1",
                signals="done",
                reads=[read("row")],
                streams=[stream("KV", SEEN, gate="kv>=1")],
            )
        ],
        buffers=[state("row"), kv()],
    ),
)
case(
    "gate-on-itself",
    "AMK-V302",
    "a task whose stream waits for the task's own signal",
    model([task("attention", signals="done", streams=[stream("KV", PAST, gate="done>=1")])], buffers=[kv()]),
)
case(
    "second-stream-gated",
    "AMK-V310",
    "the gate of the second stream comes too late for the first",
    model(
        [task("append", waits="done>=0", signals="kv", writes=[write("K", NEW), write("V", NEW)])],
        [
            task(
                "attention", waits="kv>=1", signals="done", streams=[stream("K", PAST), stream("V", PAST, gate="kv>=0")]
            )
        ],
        buffers=[kv("K"), kv("V")],
    ),
)
case(
    "first-stream-gated",
    "",
    "the producer walks its streams in order",
    model(
        [task("append", waits="done>=0", signals="kv", writes=[write("K", NEW), write("V", NEW)])],
        [
            task(
                "attention", waits="kv>=1", signals="done", streams=[stream("K", PAST, gate="kv>=0"), stream("V", PAST)]
            )
        ],
        buffers=[kv("K"), kv("V")],
    ),
)
case(
    "next-step-releases",
    "AMK-V302",
    "met by the next step's signal in every step but the last",
    model([task("A", signals="c")], [task("B", waits="c>=2")], buffers=[]),
)
case(
    "one-task-writes-twice",
    "AMK-V301",
    "the lanes of one task are in no order",
    model(
        [task("W", waits="c>=0", signals="c", writes=[write("a", (0, 2)), write("a", (1, 3))])], buffers=[state("a", 3)]
    ),
)
case(
    "own-new-row",
    "AMK-V305",
    "a task reads before it writes, so not the row it appends",
    model([task("W", waits="c>=0", signals="c", reads=[read("KV", SEEN)], writes=[write("KV", NEW)])], buffers=[kv()]),
)
for name, code, version in (("lag-last-version", "", 1), ("lag-first-version", "AMK-V303", 0)):
    case(
        name,
        code,
        "the step before is over: only its last version is there",
        model(
            [
                task("R", waits="c>=0", reads=[read("h", v=version, lag=1)]),
                task("W0", writes=[write("h", v=0)]),
                task("W1", signals="c", writes=[write("h", v=1)]),
            ],
            buffers=[state("h", versions=2)],
        ),
    )

for name, code, steps in (("tag-of-the-launch", "", 1), ("tag-of-the-step-before", "AMK-V307", 2)):
    case(
        name,
        code,
        "in a launch of one step a lag-1 read finds the launch's own word, in a longer one a version that is gone",
        model(
            [
                task("W0", waits="r>=1", writes=[write("q", v=0)]),
                task("W1", writes=[write("q", v=1)]),
            ],
            [task("R", signals="r", reads=[read("q", v=0, lag=1)])],
            buffers=[state("q", versions=2, tagged=True)],
            steps=steps,
        ),
    )

# --- between steps, and words beside them ----------------------------------------------------------------------------

for name, code, threshold, why in (
    ("overwritten-before-it-is-read", "AMK-V301", -1, "the writer waits for the reader of two steps ago only"),
    ("overwritten-after-it-is-read", "", 0, "the writer waits for the reader of the step before"),
):
    case(
        name,
        code,
        why,
        model(
            [task("W", waits=f"r>={threshold}", signals="c", writes=[write("a")])],
            [task("R", waits="c>=1", signals="r", reads=[read("a")])],
            buffers=[state("a")],
            steps=100,
        ),
    )

for name, code, written, why in (
    ("tag-never-written", "AMK-V306", (0,), "the second version is waited for, and no task writes it"),
    ("tag-of-each-version", "", (0, 1), "each version that is waited for is written"),
):
    case(
        name,
        code,
        why,
        model(
            [task(f"W{g}", waits="r>=0" if not g else "s>=1", writes=[write("q", v=g)]) for g in written],
            [task("R", signals="s", reads=[read("q")]), task("R1", signals="r", reads=[read("q", v=1)])],
            buffers=[state("q", versions=2, tagged=True)],
        ),
    )

for name, code, steps, why in (
    ("tag-beside-a-stranger", "AMK-V390", 1000, "a third worker is joined to nobody, so no window decides the tags"),
    ("tag-beside-a-stranger-for-few-steps", "", 4, "the same in a launch of four steps, all unrolled"),
):
    case(
        name,
        code,
        why,
        model(
            [task("W", waits="r>=0", writes=[write("q")])],
            [task("R", signals="r", reads=[read("q")])],
            [task("C")],
            buffers=[state("q", tagged=True)],
            steps=steps,
        ),
    )

for name, code, rows, why in (
    ("tag-read-in-part", "AMK-V308", (1, 2), "word 0 is read by nobody, so nothing but a tag orders its two stores"),
    ("tag-read-whole", "", (0, 2), "the reader of the first version stands between the two stores of each word"),
):
    case(
        name,
        code,
        why,
        model(
            [task("W", waits="d>=0", writes=[write("q", (0, 2), v=0)])],
            [task("R", waits="d>=0", reads=[read("q", rows, v=0)], writes=[write("p")])],
            [task("V", signals="d", reads=[read("p")], writes=[write("q", (0, 2), v=1)])],
            buffers=[state("q", 2, versions=2, tagged=True), state("p", tagged=True)],
            steps=2,
        ),
    )
