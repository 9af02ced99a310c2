"""Traps: what a simpler rule takes for safe, or for unsafe; each with the nearest neighbour across the line."""

from __future__ import annotations

from amk.ir.buffers import Buffer
from amk.validator import AccessModel
from tests.validator.cases import case
from tests.validator.notation import AT_POS, NEW, ONE, ROWS, SEEN, kv, model, read, state, task, write


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
