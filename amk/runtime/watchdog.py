"""Waits that ran out: of all that an aborted launch reports, the one to name."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from amk.codegen import abi
from amk.runtime.errors import WatchdogError


def wait_that_ran_out(
    reports: NDArray[np.uint32], *, tasks: tuple[str, ...], counters: tuple[str, ...], seconds: float
) -> WatchdogError:
    """The wait that the others stand behind: the earliest step, then the first counter.

    Parameters
    ----------
    reports
        ``[workers, 2, words of abi.REPORT]``; at least one of them is of a wait.
    tasks
        Ids of the tasks that were launched, by number.
    counters
        Ids of the counters, in the order of the hops that signal them.
    seconds
        The budget of a wait.
    """
    found = [
        (int(step), int(counter), worker, int(task), int(value), int(threshold))
        for worker, waiters in enumerate(reports)
        for waiting, task, step, counter, value, threshold in waiters
        if waiting
    ]
    step, counter, worker, task, value, threshold = min(found)
    in_block = counter == abi.IN_BLOCK
    return WatchdogError(
        seconds=seconds,
        task="a warp" if in_block else tasks[task],
        worker=worker,
        step=step,
        counter="its own block" if in_block else counters[counter],
        value=value,
        threshold=threshold,
        others=len(found) - 1,
    )
