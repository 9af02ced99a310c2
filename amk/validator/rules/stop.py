"""Stop.

    One task of a step, the sampler, writes ``stop``, always. Every queue, one without other work too, opens with the
    one Begin of its worker, which reads ``stop`` with lag 1, checked like any read: one thread reads, the whole block
    obeys, and all workers leave after the same step.

Stopping after step t is the launch of S = t+1 steps. Streams of steps that are not run are drained, and their gates
are given up.
"""

from __future__ import annotations

from typing import Final

from amk.ir.schedule import Schedule
from amk.ir.tasks import Begin, Sample
from amk.validator.findings import Report, Rule

RULE: Final = Rule(code="AMK-V311", title="stop not obeyed", statement=__doc__ or "")


def check(schedule: Schedule, report: Report) -> None:
    """Report queues that do not open with Begin, and samplers that are not one."""
    samplers = [task for task in schedule.tasks if isinstance(task.op, Sample)]
    if len(samplers) != 1:
        report.add(RULE, f"{len(samplers)} tasks sample; exactly one task of a step writes stop")
    stops = {task.op.stop.buffer for task in samplers if isinstance(task.op, Sample)}
    for queue in schedule.queues:
        ops = [(name, schedule.task[name].op) for name in queue.tasks]
        begins = [(name, op) for name, op in ops if isinstance(op, Begin)]
        if not ops or not isinstance(ops[0][1], Begin):
            report.add(RULE, f"the queue of worker {queue.index} does not open with Begin", mend="begin it with Begin")
        elif len(begins) > 1:
            report.add(RULE, f"{begins[1][0]} (worker {queue.index}) is a second Begin in one queue")
        for name, op in begins:
            if op.stop.lag != 1:
                report.add(
                    RULE, f"{name} (worker {queue.index}) reads stop with lag {op.stop.lag}: the step would have begun"
                )
            if stops and op.stop.buffer not in stops:
                report.add(
                    RULE, f"{name} (worker {queue.index}) reads {op.stop.buffer}, which the sampler does not set"
                )
    owners = [task.id for task in schedule.tasks for write in task.writes if write.region.buffer in stops]
    if len(owners) > 1:
        report.add(RULE, f"{owners[0]} and {owners[1]} both write stop")
