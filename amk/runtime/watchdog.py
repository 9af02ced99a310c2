"""Waits that ran out: of all that an aborted launch reports, the one to name."""

from __future__ import annotations

from graphlib import TopologicalSorter
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from amk.codegen import abi
from amk.runtime.errors import WatchdogError

if TYPE_CHECKING:
    from amk.ir.schedule import Schedule


def wait_that_ran_out(
    reports: NDArray[np.uint32], *, schedule: Schedule, tasks: tuple[str, ...], seconds: float
) -> WatchdogError:
    """The wait that the others stand behind: of the earliest step, the first hop's.

    Parameters
    ----------
    reports
        ``[workers, 2, words of abi.REPORT]``; at least one of them is of a wait.
    schedule
        What was launched, or what its queues were made from.
    tasks
        Ids of the tasks that were launched, by number.
    seconds
        The budget of a wait.
    """
    order = {hop: number for number, hop in enumerate(hops(schedule))}

    def place(found: tuple[int, NDArray[np.uint32]]) -> tuple[bool, int, int, int]:
        worker, (_, task, step, counter, _, _) = found
        inside = counter == abi.IN_BLOCK
        return inside, int(step), 0 if inside else order.get(hop_of(tasks[task]), 0), worker

    found = [(worker, report) for worker, waiters in enumerate(reports) for report in waiters if report[0]]
    worker, (_, task, step, counter, value, threshold) = min(found, key=place)
    match int(counter):
        case abi.IN_BLOCK:
            awaited = "its own block"
        case abi.IN_WORDS:
            awaited = f"words of epoch {threshold}, not all of which have come"
        case number:
            awaited = f"{schedule.counters[number].id} to reach {threshold}; it is at {value}"
    return WatchdogError(
        seconds=seconds,
        task="a warp" if counter == abi.IN_BLOCK else tasks[task],
        worker=worker,
        step=int(step),
        awaited=awaited,
        others=len(found) - 1,
    )


def hop_of(task: str) -> str:
    """The hop that a task is of: its id is the hop's and a number."""
    return task.rpartition("#")[0]


def hops(schedule: Schedule) -> list[str]:
    """Every hop before those that follow it in a queue, or read what it writes."""
    graph: TopologicalSorter[str] = TopologicalSorter()
    for queue in schedule.queues:
        for before, after in pairwise(map(hop_of, queue.tasks)):
            if before != after:
                graph.add(after, before)
    writer = {(w.region.buffer, w.version): hop_of(task.id) for task in schedule.tasks for w in task.writes}
    for task in schedule.tasks:
        sources = {writer.get((read.region.buffer, read.version)) for read in task.reads if read.lag == 0}
        graph.add(hop_of(task.id), *(hop for hop in sources if hop not in (None, hop_of(task.id))))
    return list(graph.static_order())
