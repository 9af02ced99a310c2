"""The oracle: every interleaving of a tiny model, event by event. It shares no code with the validator.

It reads the model as plain data (``msgspec.to_builtins``), lays the regions out as sets of words at concrete values of
the symbols, and walks the whole state space. A state is, for each worker, how many instances are published and how
far the next one has come: reading, writing (no signal given yet), or with some of its signals given, in any order.

Two walks, as the memory model has two kinds of waits. In the first, tags are guards by exact epoch, and the question
is whether a state without a way out is reached. In the second, tags publish nothing (except those of fenced buffers),
and the questions are whether two conflicting accesses are ever in progress together, and whether a read finds the
write that it names. Reading begins as soon as it may and ends as late as it may; both only widen the intervals.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

from tests.oracle.layout import Instance, Launch, Plain, Word, names

STATES_MAX = 150_000


class TooBigError(Exception):
    """The model has more states than the oracle is willing to walk."""


# A worker's part of a state: instances published, has the next begun to write, which of its signals are given.
Part = tuple[int, bool, int]


class Walk:
    """One of the two walks."""

    def __init__(self, launch: Launch, *, tags: bool) -> None:
        self.launch = launch
        self.tags = tags
        self.found: set[str] = set()
        self.cells: dict[Word, int] = {}
        for x in launch.all:
            streamed = [e for stream in x.expect_streams for e, _ in stream]
            for word in [w for w, _ in x.writes] + [e for e, _ in x.expect] + streamed:
                self.cells.setdefault(word, len(self.cells))
        self.tag_cells: dict[Word, int] = {}
        for x in launch.all:
            for word in [w for w, _ in x.tags_written] + [w for w, _, _ in x.tags_read]:
                self.tag_cells.setdefault(word, len(self.tag_cells))
        self.follow = self.unread_successors()
        # Per worker and number of instances published: the signals that they gave.
        self.totals = [
            [
                list(Counter(name for x in queue[:at] for name in x.node.get("signals", ())).items())
                for at in range(len(queue) + 1)
            ]
            for queue in launch.queues
        ]

    def unread_successors(self) -> list[tuple[Instance, Instance]]:
        """Writers of successive versions of a tagged word, the first of which nobody reads."""
        read = {(word, step, g) for x in self.launch.all for word, step, g in x.tags_read}
        written: dict[Word, list[tuple[int, int, Instance]]] = {}
        for x in self.launch.all:
            for word, g in x.tags_written:
                written.setdefault(word, []).append((x.step, g, x))
        pairs = []
        for word, entries in written.items():
            entries.sort(key=lambda e: e[:2])
            for (step, g, x), (_, _, y) in itertools.pairwise(entries):
                if (word, step, g) not in read:
                    pairs.append((x, y))
        return pairs

    # --- values ------------------------------------------------------------------------------------------------------

    def values(self, state: tuple[Part, ...]) -> dict[str, int]:
        value = dict.fromkeys(self.launch.per_step, 0)
        for queue, totals, (published, _, given) in zip(self.launch.queues, self.totals, state, strict=True):
            for name, total in totals[published]:
                value[name] += total
            if given:
                for number, name in enumerate(queue[published].node["signals"]):
                    value[name] += given >> number & 1
        return value

    def hold(self, waits: Any, step: int, value: dict[str, int]) -> bool:
        for wait in waits:
            name = wait["counter"]
            if value.get(name, 0) < wait["threshold"] + step * self.launch.per_step.get(name, 0):
                return False
        return True

    def fenced_hold(self, x: Instance, memory: tuple[Any, ...]) -> bool:
        """In the walk without tags, a poll of a fenced word still waits for its write to have occurred."""
        for word, step, g in x.tags_read:
            if self.fenced(word) and step >= 0:
                seen = memory[1][self.tag_cells[word]]
                if seen is None or seen < (step, g):
                    return False
        return True

    def tag_hold(self, x: Instance, memory: tuple[Any, ...]) -> bool:
        for word, step, g in x.tags_read:
            want = (step, g) if step >= 0 else None
            if memory[1][self.tag_cells[word]] != want:
                return False
        return True

    # --- steps -------------------------------------------------------------------------------------------------------

    def begun(self, worker: int, part: Part, value: dict[str, int], memory: tuple[Any, ...]) -> int:
        """How many instances at the front of the queue have begun."""
        queue, published = self.launch.queues[worker], part[0]
        at = published
        while at < len(queue) and at <= published + self.launch.drift:
            x = queue[at]
            if not self.hold(x.node.get("waits", ()), x.step, value):
                break
            if not self.tags and not self.fenced_hold(x, memory):
                break
            at += 1
        return at

    def streamed(self, worker: int, part: Part, value: dict[str, int]) -> int:
        """How many of the worker's streams may have begun; those of published tasks have."""
        units, queue = self.launch.producers[worker], self.launch.queues[worker]
        at = queue[part[0]].units if part[0] < len(queue) else len(units)
        while at < len(units) and self.hold(units[at][1].get("gate", ()), units[at][0].step, value):
            at += 1
        return at

    def look(self, state: tuple[Part, ...], begun: list[int], streamed: list[int]) -> None:
        """Conflicts between accesses in progress."""
        reading = streaming = writing = 0
        writers: list[Instance] = []
        unfinished = 0
        for worker, (published, started, given) in enumerate(state):
            base = self.launch.base[worker]
            first = published + (1 if started or given else 0)
            reading |= max(0, (1 << begun[worker]) - (1 << first)) << base
            if first < len(self.launch.queues[worker]):
                ended = self.launch.queues[worker][first].units
                streaming |= max(0, (1 << streamed[worker]) - (1 << ended)) << self.launch.unit_base[worker]
            size = len(self.launch.queues[worker])
            unfinished |= ((1 << size) - (1 << published)) << base
            if started and not given:
                x = self.launch.queues[worker][published]
                writers.append(x)
                writing |= x.bit
        for x in writers:
            if x.clash_read & reading or x.clash_write & writing:
                self.found.add("race")
            if x.clash_stream & streaming:
                self.found.add("stream")
        for x, y in self.follow:
            if x.bit & unfinished and self.is_started(y, state):
                self.found.add("tag order")

    def is_started(self, y: Instance, state: tuple[Part, ...]) -> bool:
        published, started, given = state[y.worker]
        at = (y.bit >> self.launch.base[y.worker]).bit_length() - 1
        return at < published or (at == published and (started or given != 0))

    def may_start(self, worker: int, state: tuple[Part, ...], begun: int, streamed: int, memory: Any) -> bool:
        published, started, given = state[worker]
        if started or given or begun <= published:
            return False
        x = self.launch.queues[worker][published]
        # Data must have arrived before a task can write; that orders nothing for other data.
        return not self.tags or (streamed >= x.units + len(x.streams) and self.tag_hold(x, memory))

    def compare(self, expect: list[tuple[Word, int]], memory: tuple[Any, ...]) -> None:
        """What is read, with what should be."""
        for word, mask in expect:
            writer = memory[0][self.cells[word]]
            if not (writer == 0 if mask == -1 else writer & mask):
                self.found.add("read")

    def begin_writing(self, x: Instance, memory: tuple[Any, ...]) -> tuple[Any, ...]:
        last, tags = list(memory[0]), list(memory[1])
        if not self.tags:
            for word, _ in x.writes:
                last[self.cells[word]] = x.bit
        for word, g in x.tags_written:
            if not self.fenced(word):
                self.stamp(tags, word, (x.step, g))
        return tuple(last), tuple(tags)

    def stamp(self, tags: list[Any], word: Word, epoch: tuple[int, int]) -> None:
        """Store a word. Its epoch never goes back: versions of a step are written in the order of their numbers."""
        if self.tags and tags[self.tag_cells[word]] is not None and tags[self.tag_cells[word]] > epoch:
            self.found.add("tag order")
        tags[self.tag_cells[word]] = epoch

    def fenced(self, word: Word) -> bool:
        return bool(self.launch.buffers[word[0]].get("fenced", False))

    def publish(self, x: Instance, memory: tuple[Any, ...]) -> tuple[Any, ...]:
        """Words of fenced buffers are released when all of the task's data is out."""
        tags = list(memory[1])
        for word, g in x.tags_written:
            if self.fenced(word):
                self.stamp(tags, word, (x.step, g))
        return memory[0], tuple(tags)

    def walk(self) -> None:
        parts: tuple[Part, ...] = tuple((0, False, 0) for _ in self.launch.queues)
        memory: tuple[Any, ...] = ((0,) * len(self.cells), (None,) * len(self.tag_cells))
        seen = {(parts, memory[1] if self.tags else None)}
        stack = [(parts, memory)]
        while stack:
            state, memory = stack.pop()
            if len(seen) > STATES_MAX:
                raise TooBigError
            moves = self.moves(state, memory)
            ended = all(part[0] == len(queue) for part, queue in zip(state, self.launch.queues, strict=True))
            if self.tags and not moves and not ended:
                self.found.add("deadlock")
            for state2, memory2 in moves:
                key = (state2, memory2[1] if self.tags else None)
                if key not in seen:
                    seen.add(key)
                    stack.append((state2, memory2))

    def moves(self, state: tuple[Part, ...], memory: Any) -> list[tuple[tuple[Part, ...], Any]]:
        value = self.values(state)
        begun = [self.begun(w, part, value, memory) for w, part in enumerate(state)]
        streamed = [self.streamed(w, part, value) for w, part in enumerate(state)]
        if not self.tags:
            self.look(state, begun, streamed)
        moves = []
        for worker, (published, started, given) in enumerate(state):
            queue = self.launch.queues[worker]
            if published == len(queue):
                continue
            x = queue[published]

            def become(part: Part, worker: int = worker) -> tuple[Part, ...]:
                return (*state[:worker], part, *state[worker + 1 :])

            if not started:
                if self.may_start(worker, state, begun[worker], streamed[worker], memory):
                    if not self.tags:
                        self.compare(x.expect, memory)
                        # Streams that have not been let go yet are looked at in the orders in which they have.
                        for stream in x.expect_streams[: max(0, streamed[worker] - x.units)]:
                            self.compare(stream, memory)
                    moves.append((become((published, True, 0)), self.begin_writing(x, memory)))
                continue
            signals = x.node.get("signals", ())
            full = (1 << len(signals)) - 1
            if given == full:
                moves.append((become((published + 1, False, 0)), self.publish(x, memory)))
            for number in range(len(signals)):
                after = given | 1 << number
                if after == full:
                    moves.append((become((published + 1, False, 0)), self.publish(x, memory)))
                elif after != given:
                    moves.append((become((published, True, after)), memory))
        return moves


def launches(model: Plain) -> list[tuple[int, int, int]]:
    """(pos0, m, S) of every launch that differs."""
    low, high = model.get("tokens", (1, 1))
    context, least = model["max_context"], model.get("pos_low", 0)
    found = []
    for m in range(low, high + 1):
        starts = range(least, context - m + 1) if names(model, "pos") else [least]
        for pos0 in starts:
            steps = min(model["steps_max"], (context - pos0) // m)
            if steps >= 1:
                found.append((pos0, m, steps))
    return found


def explore(model: Plain) -> set[str]:
    """Kinds of faults that some interleaving of some launch reaches; empty if the model is safe.

    A launch of fewer steps has no access that a longer one from the same position has not, but it may hang where the
    longer one goes on: whether it ends is asked for every number of steps.
    """
    found: set[str] = set()
    for pos0, m, most in launches(model):
        for steps in range(1, most + 1):
            launch = Launch(model, pos0, m, steps)
            found |= launch.faults
            if "tag" in launch.faults:
                continue
            for tags in (True, False) if steps == most else (True,):
                walk = Walk(launch, tags=tags)
                walk.walk()
                found |= walk.found
    return found
