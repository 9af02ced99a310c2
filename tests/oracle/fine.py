"""The oracle without its short cuts: beginning, streaming, the end of reading and writing are events of their own.

``explore`` lets reading begin as soon as it may and end as late as it may, which only widens the intervals in which
accesses meet. Here nothing is hurried or delayed, so that the short cut can be compared with the whole walk on models
small enough for it.
"""

from __future__ import annotations

from typing import Any

from tests.oracle.explore import STATES_MAX, TooBigError, Walk, launches
from tests.oracle.layout import Instance, Launch, Plain

# Published, begun, reads ended, streams begun, is the next to publish writing, and which of its signals are given.
Fine = tuple[int, int, int, int, bool, int]
State = tuple[Fine, ...]


class FineWalk(Walk):
    """Every event on its own."""

    def walk(self) -> None:
        start: State = tuple((0, 0, 0, 0, False, 0) for _ in self.launch.queues)
        memory: tuple[Any, ...] = ((0,) * len(self.cells), (None,) * len(self.tag_cells))
        seen = {(start, memory[1] if self.tags else None)}
        stack = [(start, memory)]
        while stack:
            if len(seen) > STATES_MAX:
                raise TooBigError
            state, memory = stack.pop()
            moves = self.events(state, memory)
            ended = all(part[0] == len(queue) for part, queue in zip(state, self.launch.queues, strict=True))
            if self.tags and not moves and not ended:
                self.found.add("deadlock")
            for state2, memory2 in moves:
                key = (state2, memory2[1] if self.tags else None)
                if key not in seen:
                    seen.add(key)
                    stack.append((state2, memory2))

    def events(self, state: State, memory: Any) -> list[tuple[State, Any]]:
        value = self.values(tuple((published, writing, given) for published, _, _, _, writing, given in state))
        if not self.tags:
            self.watch(state)
        moves: list[tuple[State, Any]] = []
        for worker, part in enumerate(state):
            for after, memory2 in self.of_worker(worker, part, value, memory):
                moves.append(((*state[:worker], after, *state[worker + 1 :]), memory2))
        return moves

    def of_worker(self, worker: int, part: Fine, value: dict[str, int], memory: Any) -> list[tuple[Fine, Any]]:
        queue, units = self.launch.queues[worker], self.launch.producers[worker]
        published, begun, ended, streamed, writing, given = part
        moves: list[tuple[Fine, Any]] = []
        if begun < len(queue) and begun <= published + self.launch.drift:
            x = queue[begun]
            if self.hold(x.node.get("waits", ()), x.step, value) and (self.tags or self.fenced_hold(x, memory)):
                moves.append(((published, begun + 1, ended, streamed, writing, given), memory))
        if streamed < len(units) and self.hold(units[streamed][1].get("gate", ()), units[streamed][0].step, value):
            if not self.tags:
                x, _ = units[streamed]
                self.compare(x.expect_streams[streamed - x.units], memory)
            moves.append(((published, begun, ended, streamed + 1, writing, given), memory))
        if ended < begun:
            x = queue[ended]
            # As in the short walk, the arrival of streamed data orders nothing for other data.
            arrived = streamed >= x.units + len(x.streams)
            if not self.tags or (arrived and self.tag_hold(x, memory)):
                if not self.tags:
                    self.compare(x.expect, memory)
                moves.append(((published, begun, ended + 1, streamed, writing, given), memory))
        if published < ended and not writing:
            after = (published, begun, ended, streamed, True, 0)
            moves.append((after, self.begin_writing(queue[published], memory)))
        if writing:
            signals = queue[published].node.get("signals", ())
            full = (1 << len(signals)) - 1
            done = (published + 1, begun, ended, streamed, False, 0)
            if given == full:
                moves.append((done, self.publish(queue[published], memory)))
            for number in range(len(signals)):
                more = given | 1 << number
                if more == full:
                    moves.append((done, self.publish(queue[published], memory)))
                elif more != given:
                    moves.append(((published, begun, ended, streamed, True, more), memory))
        return moves

    def watch(self, state: State) -> None:
        reading = streaming = writing = unfinished = 0
        writers: list[Instance] = []
        for worker, (published, begun, ended, streamed, is_writing, given) in enumerate(state):
            queue, base = self.launch.queues[worker], self.launch.base[worker]
            reading |= ((1 << begun) - (1 << ended)) << base
            first = queue[ended].units if ended < len(queue) else len(self.launch.producers[worker])
            streaming |= max(0, (1 << streamed) - (1 << first)) << self.launch.unit_base[worker]
            unfinished |= ((1 << len(queue)) - (1 << published)) << base
            if is_writing and not given:
                writers.append(queue[published])
                writing |= queue[published].bit
        for x in writers:
            if x.clash_read & reading or x.clash_write & writing:
                self.found.add("race")
            if x.clash_stream & streaming:
                self.found.add("stream")
        plain = tuple((published, is_writing, given) for published, _, _, _, is_writing, given in state)
        for x, y in self.follow:
            if x.bit & unfinished and self.is_started(y, plain):
                self.found.add("tag order")


def explore_finely(model: Plain) -> set[str]:
    """As ``explore``, event by event."""
    found: set[str] = set()
    for pos0, m, steps in launches(model):
        launch = Launch(model, pos0, m, steps)
        found |= launch.faults
        if "tag" in launch.faults:
            continue
        for tags in (True, False):
            walk = FineWalk(launch, tags=tags)
            walk.walk()
            found |= walk.found
    return found
