"""The five tricky schedules: each is wrong, or right, for a reason that a simpler rule misses."""

from __future__ import annotations

from msgspec.structs import replace

from amk.validator import AccessModel
from tests.validator.cases import case
from tests.validator.notation import AT_POS, NEW, PAST, ROWS, SEEN, kv, model, read, state, stream, task, write

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
