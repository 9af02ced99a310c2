"""Plays a real schedule in one random legal order, word by word: what each read finds, and whether the end is reached.

It shares no code with the validator. One order proves nothing; many orders of a schedule that was proved must all be
right.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec

from tests.oracle.layout import Launch, Plain


def as_model(schedule: Any) -> Plain:
    """The schedule as the oracle's plain data."""
    plain = msgspec.to_builtins(schedule)
    task = {one["id"]: one for one in plain["tasks"]}
    return {
        "buffers": plain["buffers"],
        "queues": [[task[name] for name in queue["tasks"]] for queue in plain["queues"]],
        "drift": plain["target"]["drift"],
    }


def play(schedule: Any, *, steps: int, pos0: int, m: int, rng: random.Random) -> list[str]:
    """Faults that one random order shows; tasks are atomic, streams are read when they are allowed to begin."""
    launch = Launch(as_model(schedule), pos0, m, steps)
    value = dict.fromkeys(launch.per_step, 0)
    last: dict[Any, int] = {}
    at = [0] * len(launch.queues)
    streamed = [0] * len(launch.queues)
    faults: list[str] = []

    def holds(waits: Any, step: int) -> bool:
        return all(value[w["counter"]] >= w["threshold"] + step * launch.per_step[w["counter"]] for w in waits)

    def look(x: Any, expect: Any) -> None:
        for word, mask in expect:
            writer = last.get(word, 0)
            if not (writer == 0 if mask == -1 else writer & mask):
                faults.append(f"{x.node['id']}@{x.step} reads {word}")

    while True:
        moves: list[tuple[str, int]] = []
        for worker, queue in enumerate(launch.queues):
            if at[worker] < len(queue):
                x = queue[at[worker]]
                if holds(x.node.get("waits", ()), x.step) and streamed[worker] >= x.units + len(x.streams):
                    moves.append(("task", worker))
            units = launch.producers[worker]
            if streamed[worker] < len(units):
                x, stream = units[streamed[worker]]
                if holds(stream.get("gate", ()), x.step):
                    moves.append(("stream", worker))
        if not moves:
            break
        kind, worker = rng.choice(moves)
        if kind == "stream":
            x, _ = launch.producers[worker][streamed[worker]]
            look(x, x.expect_streams[streamed[worker] - x.units])
            streamed[worker] += 1
            continue
        x = launch.queues[worker][at[worker]]
        look(x, x.expect)
        for word, _ in x.writes:
            last[word] = x.bit
        for name in x.node.get("signals", ()):
            value[name] += 1
        at[worker] += 1
    if any(place < len(queue) for place, queue in zip(at, launch.queues, strict=True)):
        faults.append("deadlock")
    return faults
