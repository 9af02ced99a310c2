"""Footprint.

    Parameters of a task are possible, its operands are buffers of the right kind, type and rank, and its reads,
    writes and streams are exactly what its kind derives from them: a schedule cannot lie about what a task touches.

That the kinds themselves tell the truth is shown elsewhere, by the footprint log of the host build.
"""

from __future__ import annotations

from typing import Final

from amk.ir.schedule import Schedule, Task
from amk.validator.findings import Report, Rule
from amk.validator.operands import Operands

RULE: Final = Rule(code="AMK-V316", title="task at odds with its kind", statement=__doc__ or "")


def check(schedule: Schedule, report: Report) -> None:
    """Report tasks with impossible parameters, or with accesses that their kind does not derive."""
    operands = Operands(schedule.buffer, schedule.max_context)
    for task in schedule.tasks:
        faults = operands.faults(task.op)
        for fault in faults:
            report.add(RULE, f"{task.id}: {fault}")
        if not faults:
            _compare(task, schedule, report)


def _compare(task: Task, schedule: Schedule, report: Report) -> None:
    derived = (
        ("reads", task.reads, task.op.reads(schedule.buffer)),
        ("writes", task.writes, task.op.writes(schedule.buffer)),
        ("streams", tuple(stream.region for stream in task.streams), task.op.streams(schedule.buffer)),
    )
    for name, stated, meant in derived:
        if stated != meant:
            text = f"{task.id} states {name} that its kind does not derive from its parameters"
            report.add(RULE, text, mend=f"leave {name} as the kind derives them, or change the parameters")
