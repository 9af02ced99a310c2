"""More traps: windows, gates, and what lies between steps; each with the nearest neighbour across the line."""

from __future__ import annotations

from msgspec.structs import replace

from amk.ir.regions import POS, Interval, linear
from amk.validator import AccessModel, Node
from tests.validator.cases import case
from tests.validator.notation import NEW, PAST, SEEN, kv, model, read, state, stream, task, write

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
