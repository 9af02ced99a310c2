"""Small models that a simpler rule gets wrong, each with its verdict: the five tricky schedules and the traps."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from amk.ir.buffers import Buffer
from amk.validator import AccessModel
from tests.validator.notation import (
    AT_POS,
    NEW,
    ONE,
    PAST,
    ROWS,
    SEEN,
    kv,
    model,
    read,
    state,
    stream,
    task,
    write,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model, the code that refutes it (empty if it is proved), and why it is here."""

    name: str
    code: str
    why: str
    model: AccessModel


CASES: dict[str, Case] = {}


def case(name: str, code: str, why: str, found: AccessModel) -> None:
    assert name not in CASES
    CASES[name] = Case(name=name, code=code, why=why, model=found)


# --- E1: signals of the next step release a wait early ---------------------------------------------------------------

_a = task("A", signals="c", writes=[write("a")])
_b = task("B", signals="c", writes=[write("b")])
_c = task("C", waits="c>=2", reads=[read("a"), read("b")])
_ab = [state("a"), state("b")]
_e1 = model([_a], [_b], [_c], buffers=_ab, steps=2)

case("e1-early-release", "AMK-V301", "A signals c twice before B does once: C reads b too early", _e1)
case("e1-one-step", "", "the same schedule is safe when a launch has one step", replace(_e1, steps_max=1))
case(
    "e1-joined",
    "",
    "A and B wait for the reader of the step before",
    model(
        [task("A", waits="d>=0", signals="c", writes=[write("a")])],
        [task("B", waits="d>=0", signals="c", writes=[write("b")])],
        [task("C", waits="c>=2", signals="d", reads=[read("a"), read("b")])],
        buffers=_ab,
        steps=1000,
    ),
)

# --- E2: the counter reaches its threshold by one writer's two steps -------------------------------------------------


def _e2(reader: str) -> AccessModel:
    return model(
        [task("A", waits="g>=-1 f>=-1", signals="c h", writes=[write("X", AT_POS)])],
        [task("B", waits="h>=-1 f>=-1", signals="c g", writes=[write("Y", AT_POS)])],
        [task("C", waits=reader, signals="f", reads=[read("X", AT_POS), read("Y", AT_POS)])],
        buffers=[state("X", 64), state("Y", 64)],
        steps=4,
        context=8,
    )


case(
    "e2-two-of-one",
    "AMK-V301",
    "c reaches 2 by two steps of A; the race is at the first steps, not the last",
    _e2("c>=2"),
)
case("e2-one-of-each", "", "C waits for each writer by a counter of its own", _e2("h>=1 g>=1"))

# --- E3: one counter as a barrier ------------------------------------------------------------------------------------


def _e3(threshold: int) -> AccessModel:
    queues = []
    for w in range(3):
        mine = (w, w + 1)
        queues.append(
            [
                task(
                    f"first{w}",
                    waits="c>=0",
                    signals="c",
                    reads=[read("b", (0, 3), lag=1)],
                    writes=[write("a", mine)],
                ),
                task(
                    f"second{w}",
                    waits=f"c>={threshold}",
                    signals="c",
                    reads=[read("a", (0, 3))],
                    writes=[write("b", mine)],
                ),
            ]
        )
    return model(*queues, buffers=[state("a", 3), state("b", 3)], steps=100)


case("e3-barrier", "", "support is circular: a least fixpoint refutes this", _e3(3))
case("e3-low", "AMK-V301", "two of three signals let a reader pass one writer", _e3(2))
case("e3-high", "AMK-V302", "the fourth signal comes only after the wait for it", _e3(4))

# --- E4: KV streamed ahead of the append ------------------------------------------------------------------------------


def _e4(rows: tuple, gate: str, waits: str = "", *, new_row: bool = False) -> AccessModel:
    return model(
        [task("qkv", waits="done>=0", signals="q", writes=[write("act")])],
        [
            task("append", waits="q>=1", signals="kv", reads=[read("act")], writes=[write("KV", NEW)]),
            task(
                "attention",
                waits=waits,
                signals="done",
                reads=[read("act")] if new_row else [],
                streams=[stream("KV", rows, gate=gate)],
            ),
        ],
        buffers=[state("act"), kv()],
        steps=6,
    )


case("e4-no-gate", "AMK-V310", "the producer reads the new row before the consumers wrote it", _e4(SEEN, ""))
case("e4-gated", "", "the producer waits for the append itself", _e4(SEEN, "kv>=1"))
case("e4-wait-is-no-gate", "AMK-V310", "the consumers' wait does not hold the producer back", _e4(SEEN, "", "kv>=1"))
case(
    "e4-past-only",
    "",
    "past rows behind the step join; the new row from the activations",
    _e4(PAST, "done>=0", new_row=True),
)
case("e4-past-no-gate", "AMK-V310", "the row of the step before is streamed ahead of its append", _e4(PAST, ""))

# --- E5: a tag publishes its own word and nothing else ---------------------------------------------------------------

_tags = [kv(), state("q", tagged=True), state("row", 4, tagged=True)]
case(
    "e5-tag-publishes-kv",
    "AMK-V301",
    "the tag of q says nothing about the plain KV row",
    model(
        [task("A", waits="d>=0", writes=[write("KV", NEW), write("q")])],
        [task("B", signals="d", reads=[read("q"), read("KV", SEEN)])],
        buffers=_tags[:2],
    ),
)
_e5_a = task("A", waits="d>=0", signals="e", writes=[write("KV", NEW), write("q"), write("row", ROWS)])
_e5_b = task("B", waits="e>=0", signals="d", reads=[read("q"), read("row", ROWS), read("KV", PAST)])
case(
    "e5-row-tagged",
    "",
    "past rows behind the step join, the new row as tagged words",
    model([_e5_a], [_e5_b], buffers=_tags),
)
case(
    "e5-same-epoch-twice",
    "AMK-V306",
    "an epoch that is the step alone cannot tell two writes of a step apart",
    model([_e5_a, task("A2", waits="d>=1", writes=[write("q")])], [_e5_b], buffers=_tags),
)
case(
    "e5-second-version",
    "",
    "the words of q again, later in the step, under a version of their own",
    model(
        [
            task("A", waits="d>=0", writes=[write("q", v=0)]),
            task("A2", waits="e>=1", writes=[write("q", v=1)]),
        ],
        [task("B", signals="e", reads=[read("q", v=0)]), task("B2", signals="d", reads=[read("q", v=1)])],
        buffers=[state("q", versions=2, tagged=True)],
    ),
)

# --- traps -----------------------------------------------------------------------------------------------------------


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
