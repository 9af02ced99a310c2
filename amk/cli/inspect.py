"""``amk inspect``: what a schedule holds and, by estimate, where its time goes; as tables or as a page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

from amk.cli.inspect_page import render_page
from amk.cli.inspect_page.describe import printable
from amk.cli.inspect_report import QueueReport, Summary, TaskReport, Tasks, summarise
from amk.cli.inspect_tables import print_queue, print_summary, print_task
from amk.cli.options import Json, open_schedule
from amk.cli.output import OUT, print_json
from amk.errors import BadOptionError
from amk.ir.regions import TOKENS
from amk.ir.schedule import Schedule
from amk.ir.timeline import estimate
from amk.settings import write_atomically

NOMINAL_POS: Final = 512

ReportT = TypeVar("ReportT", Summary, TaskReport, QueueReport)


def inspect(
    path: Annotated[Path, typer.Argument(metavar="SCHEDULE.json", help="A schedule file.")],
    *,
    pos: Annotated[
        int | None, typer.Option(help=f"Estimate a step with this many positions before it. Default: {NOMINAL_POS}.")
    ] = None,
    tokens: Annotated[int, typer.Option(help="Estimate a step of this many tokens.")] = 1,
    html: Annotated[Path | None, typer.Option(help="Write a page with the queues as a timeline.")] = None,
    task: Annotated[str | None, typer.Option(help="Show one task, by its id.")] = None,
    worker: Annotated[int | None, typer.Option(help="Show one worker's queue, by its place among the queues.")] = None,
    as_json: Json = False,
) -> None:
    """Show what a schedule holds: tasks, hops, waits, buffers, and times that a cost model estimates.

    The file is read, not proved safe: `amk validate` does that.
    """
    schedule = open_schedule(path)
    _check_worker(schedule, worker)
    at, rows = _moment(schedule, pos, tokens)
    timeline = estimate(schedule, pos=at, tokens=rows)
    if html is not None:
        page = render_page(schedule, timeline).encode()
        write_atomically(html, page, fix="choose another path for --html")
    written = str(html) if html else None
    tasks = Tasks(schedule, timeline)
    if task is not None:
        found = tasks.find(task)
        if found is None:
            raise _no_such_task(schedule, task)
        _show(found, print_task, as_json=as_json, html=written)
    elif worker is not None:
        _show(tasks.queue(worker), print_queue, as_json=as_json, html=written)
    else:
        _show(summarise(schedule, timeline, path=str(path)), print_summary, as_json=as_json, html=written)


def _show(report: ReportT, show: Callable[[ReportT], None], *, as_json: bool, html: str | None) -> None:
    if as_json:
        print_json({**asdict(report), "html": html})
        return
    show(report)
    if html is not None:
        OUT.print(f"{'written':<12} {html}")


def _check_worker(schedule: Schedule, worker: int | None) -> None:
    count = len(schedule.queues)
    if worker is not None and not 0 <= worker < count:
        why = f"the schedule has {count} queues"
        raise BadOptionError(option="--worker", value=worker, why=why, fix=f"give a number from 0 to {count - 1}")


def _no_such_task(schedule: Schedule, task: str) -> BadOptionError:
    ids = [name for queue in schedule.queues for name in queue.tasks]
    close = ", ".join(get_close_matches(task, ids, n=3, cutoff=0.0))
    return BadOptionError(option="--task", value=task, why="no queue has such a task", fix=f"try {printable(close)}")


def _moment(schedule: Schedule, pos: int | None, tokens: int) -> tuple[int, int]:
    """The position and the tokens to estimate at, both within what the schedule allows."""
    most = next((symbol.high for symbol in schedule.symbols if symbol.name == TOKENS), 1)
    if not 1 <= tokens <= most:
        why = f"a step of this schedule has 1 to {most} tokens"
        raise BadOptionError(option="--tokens", value=tokens, why=why, fix=f"give a number from 1 to {most}")
    last = max(0, schedule.max_context - tokens)
    if pos is None:
        return min(NOMINAL_POS, last), tokens
    if not 0 <= pos <= last:
        why = f"with {tokens} tokens more it has to fit in {schedule.max_context} positions"
        raise BadOptionError(option="--pos", value=pos, why=why, fix=f"give a number from 0 to {last}")
    return pos, tokens
