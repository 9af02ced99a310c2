"""Stopping: the sampler decides, step by step, whether the launch goes on, and every worker obeys what it reads.

The proof treats a stop after step t as the launch of t + 1 steps, and the read of ``stop`` as a read like any other.
Here it is acted out: the sampler writes yes or no, freely; a worker that reads yes leaves, and the walk asks of every
interleaving whether all workers leave after the same step, with none left waiting for another that has gone.
"""

from __future__ import annotations

from typing import Any

from tests.oracle.runs import Plain

STATES_MAX = 400_000

# Instances published, has the next one read, has it written, has the worker left.
Part = tuple[int, bool, bool, bool]


class StopWalk:
    """Every interleaving of ``steps`` steps at most; a task reads, then writes, then publishes."""

    def __init__(self, model: Plain, steps: int) -> None:
        self.steps = steps
        self.queues: list[list[Plain]] = model["queues"]
        self.sampler = next(node["id"] for queue in self.queues for node in queue if node["op"]["kind"] == "sample")
        signals = [name for queue in self.queues for node in queue for name in node.get("signals", ())]
        self.per_step = {name: signals.count(name) for name in signals}
        self.found: set[str] = set()

    def walk(self) -> set[str]:
        """What goes wrong: ``apart`` if workers leave after different steps, ``stuck`` if one cannot go on."""
        start = (((0, False, False, False),) * len(self.queues), False)
        seen, stack = {start}, [start]
        while stack:
            assert len(seen) < STATES_MAX
            state = stack.pop()
            after = self.moves(*state)
            if not after:
                self._ended(state[0])
            for other in after:
                if other not in seen:
                    seen.add(other)
                    stack.append(other)
        return self.found

    def _ended(self, parts: tuple[Part, ...]) -> None:
        if any(
            not left and published < self.steps * len(queue) for (published, _, _, left), queue in self._both(parts)
        ):
            self.found.add("stuck")
        if len({-(-published // len(queue)) for (published, _, _, _), queue in self._both(parts)}) > 1:
            self.found.add("apart")

    def _both(self, parts: tuple[Part, ...]) -> Any:
        return zip(parts, self.queues, strict=True)

    def _value(self, parts: tuple[Part, ...], name: str) -> int:
        total = 0
        for (published, _, _, _), queue in self._both(parts):
            whole, rest = divmod(published, len(queue))
            total += whole * sum(node.get("signals", ()).count(name) for node in queue)
            total += sum(node.get("signals", ()).count(name) for node in queue[:rest])
        return total

    def moves(self, parts: tuple[Part, ...], stop: bool) -> list[tuple[tuple[Part, ...], bool]]:
        found: list[tuple[tuple[Part, ...], bool]] = []
        for worker, ((published, has_read, has_written, left), queue) in enumerate(self._both(parts)):
            if left or published == self.steps * len(queue):
                continue
            step, index = divmod(published, len(queue))
            node = queue[index]

            def become(part: Part, says: bool = stop, worker: int = worker) -> None:
                found.append(((*parts[:worker], part, *parts[worker + 1 :]), says))

            if not has_read:
                gates = [wait for stream in node.get("streams", ()) for wait in stream.get("gate", ())]
                if all(self._holds(parts, wait, step) for wait in (*node.get("waits", ()), *gates)):
                    leaves = node["op"]["kind"] == "begin" and stop
                    become((published, not leaves, False, leaves))
            elif not has_written:
                for says in (False, True) if node["id"] == self.sampler else (stop,):
                    become((published, True, True, False), says)
            else:
                become((published + 1, False, False, False))
        return found

    def _holds(self, parts: tuple[Part, ...], wait: Plain, step: int) -> bool:
        need = wait["threshold"] + step * self.per_step.get(wait["counter"], 0)
        return self._value(parts, wait["counter"]) >= need
