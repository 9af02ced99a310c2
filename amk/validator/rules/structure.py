"""Structure.

Ids of tasks, buffers and counters are unique and not empty; queues are numbered 0 .. n-1; each task stands in
exactly one queue, once; waits, gates and signals name counters of the schedule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from amk.ir.schedule import Schedule
from amk.validator.findings import Report, Rule

RULE: Final = Rule(code="AMK-V314", title="malformed structure", statement=__doc__ or "")


def check(schedule: Schedule, report: Report) -> None:
    """Report ids and queues that do not fit together."""
    _unique("task", (task.id for task in schedule.tasks), report)
    _unique("buffer", (buffer.id for buffer in schedule.buffers), report)
    _unique("counter", (counter.id for counter in schedule.counters), report)
    _queues(schedule, report)
    counters = {counter.id for counter in schedule.counters}
    for task in schedule.tasks:
        gates = (wait.counter for stream in task.streams for wait in stream.gate)
        for name in (*(wait.counter for wait in task.waits), *gates, *task.signals):
            if name not in counters:
                report.add(RULE, f"{task.id} names the counter {name!r}, which the schedule does not have")


def _unique(what: str, names: Iterable[str], report: Report) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            report.add(RULE, f"{count} {what}s are called {name!r}")
        if not name:
            report.add(RULE, f"a {what} has an empty id")


def _queues(schedule: Schedule, report: Report) -> None:
    if not schedule.queues:
        report.add(RULE, "there are no queues")
    numbers = [queue.index for queue in schedule.queues]
    if numbers != list(range(len(numbers))):
        report.add(RULE, f"queues are numbered {_some(numbers)}, not 0 .. {len(numbers) - 1} in order")
    known = {task.id for task in schedule.tasks}
    placed = Counter(name for queue in schedule.queues for name in queue.tasks)
    for name, count in placed.items():
        if name not in known:
            report.add(RULE, f"a queue names the task {name!r}, which the schedule does not have")
        elif count > 1:
            report.add(RULE, f"the task {name} stands {count} times in queues")
    for name in sorted(known - placed.keys()):
        report.add(RULE, f"the task {name} stands in no queue", mend="put it in a queue, or leave it out")


def _some(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:6]))
    return f"{shown}, ..." if len(numbers) > 6 else shown
