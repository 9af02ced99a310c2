"""How ``amk inspect`` prints what it found."""

from __future__ import annotations

from rich.filesize import decimal
from rich.table import Table

from amk.cli.inspect_report import QueueReport, Summary, TaskReport, show_wait_report
from amk.cli.output import OUT

STUCK_SHOWN = 5


def print_summary(summary: Summary) -> None:
    """The schedule at a glance."""
    estimate = summary.estimate
    ring_bytes, stage_bytes = summary.ring_stages * summary.ring_stage_bytes, summary.ring_stage_bytes
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in summary.tasks_by_kind.items())
    _print_pairs(
        {
            "schedule": summary.path,
            "digest": summary.digest,
            "target": f"{summary.target} ({summary.arch}), {summary.workers} workers",
            "ring": f"{decimal(ring_bytes)} a worker: {summary.ring_stages} stages of {decimal(stage_bytes)}",
            "context": f"{summary.max_context:,} positions, at most {summary.steps_max:,} steps in a launch",
            "tasks": f"{summary.tasks:,}: {kinds}",
            "order": f"{summary.counters:,} counters, {summary.waits:,} waits, {summary.signals:,} signals a step",
            "estimate": (
                f"{estimate.step_us:,.1f} us a step of {estimate.tokens} at position {estimate.pos:,}; "
                f"{decimal(estimate.bytes)} streamed, {estimate.floor_us:,.1f} us at full bandwidth"
            ),
        }
    )
    OUT.print("             (times are estimates of a cost model, not measurements)")
    for line in estimate.stuck[:STUCK_SHOWN]:
        OUT.print(f"  blocked    {line}")
    if len(estimate.stuck) > STUCK_SHOWN:
        OUT.print(f"             {len(estimate.stuck) - STUCK_SHOWN} more of {len(estimate.stuck)} blocked workers")
    hops = _table(("hops",), "number", "tasks", "bytes", "mean wait us", "adds us")
    for role in summary.roles:
        numbers = (
            f"{role.hops:,}",
            f"{role.tasks:,}",
            decimal(role.bytes),
            f"{role.wait_us:.2f}",
            f"{role.adds_us:.1f}",
        )
        hops.add_row(role.role, *numbers)
    OUT.print()
    OUT.print(hops)
    buffers = _table(("buffers",), "number", "bytes")
    for total in summary.buffers:
        buffers.add_row(total.kind, f"{total.count:,}", decimal(total.bytes))
    OUT.print()
    OUT.print(buffers)


def print_task(task: TaskReport) -> None:
    """One task, a field a line."""
    pairs = {
        "task": task.id,
        "kind": task.kind,
        "worker": f"{task.worker}, number {task.place} of its queue",
        "estimate": _times(task),
    }
    _print_pairs(pairs)
    for title, lines in (
        ("parameters", [f"{name} = {value}" for name, value in task.parameters.items()]),
        ("waits", [show_wait_report(wait) for wait in task.waits]),
        ("streams", task.streams),
        ("reads", task.reads),
        ("writes", task.writes),
        ("signals", task.signals),
    ):
        for number, line in enumerate(lines):
            OUT.print(f"{'' if number else title:<12} {line}")


def _times(task: TaskReport) -> str:
    if task.start_us is None or task.end_us is None:
        return "never starts: the schedule blocks"
    took = task.end_us - task.start_us
    return f"starts at {task.start_us:.2f} us after waiting {task.wait_us:.2f}, takes {took:.2f}, {decimal(task.bytes)}"


def print_queue(queue: QueueReport) -> None:
    """One worker's tasks in order."""
    OUT.print(f"worker {queue.worker}: device {queue.device}, index {queue.index}, {len(queue.tasks)} tasks")
    table = _table(("task", "kind"), "waited us", "start us", "takes us", "bytes")
    table.add_column("waits for", no_wrap=True, overflow="ignore")
    for task in queue.tasks:
        if task.start_us is None or task.end_us is None or task.wait_us is None:
            times = ("never", "", "")
        else:
            times = (f"{task.wait_us:.2f}", f"{task.start_us:.2f}", f"{task.end_us - task.start_us:.3f}")
        waits = ", ".join(f"{wait.counter} >= {wait.threshold}" for wait in task.waits)
        table.add_row(task.id, task.kind, *times, decimal(task.bytes), waits)
    OUT.print(table)


def _table(labels: tuple[str, ...], *numbers: str) -> Table:
    table = Table(*labels, box=None, pad_edge=False)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _print_pairs(pairs: dict[str, str]) -> None:
    for name, value in pairs.items():
        OUT.print(f"{name:<12} {value}")
