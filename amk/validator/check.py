"""validate: every rule, in an order in which each may assume what the ones before it have shown."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from amk.ir.schedule import Schedule
from amk.validator.accesses import Accesses, collect
from amk.validator.boxes import Domain, TooManyPiecesError, domain
from amk.validator.context import Context, by_tag_waits, mattering_streams, tag_edges
from amk.validator.findings import Report, Verdict, outcome
from amk.validator.limits import DRIFT_MAX
from amk.validator.model import AccessModel, of_schedule
from amk.validator.order import TooManySweepsError, window
from amk.validator.program import Program, of_model
from amk.validator.rules import (
    capacity,
    deadlock,
    expressible,
    footprint,
    kv,
    launch,
    outputs,
    race,
    reads,
    regions,
    stop,
    structure,
    tag_order,
    tag_overwritten,
    tag_writer,
)
from amk.validator.rules import window as window_rule


def validate(schedule: Schedule | Path | str) -> Verdict:
    """Check a schedule against every rule.

    Parameters
    ----------
    schedule
        A schedule, or the path of a schedule file.

    Returns
    -------
    Verdict
        PROVED, REFUTED with witnesses, or UNKNOWN.

    Raises
    ------
    UnreadableInputError, MalformedScheduleError, ScheduleVersionError
        The file cannot be read as a schedule. A schedule that can be read always gets a verdict.
    """
    if not isinstance(schedule, Schedule):
        schedule = Schedule.load(Path(schedule))
    began = time.perf_counter()
    report, counts = Report(), Counter[str](tasks=len(schedule.tasks), workers=len(schedule.queues))
    with _no_collection():
        _check_schedule(schedule, report, counts)
    return _verdict(report, counts, began)


def validate_model(model: AccessModel) -> Verdict:
    """Check a bare access model: the order rules, without those about task kinds, stop and capacity."""
    began = time.perf_counter()
    report, counts = Report(), Counter[str](tasks=sum(map(len, model.queues)), workers=len(model.queues))
    expressible.check_range(model.pos_low, model.tokens, model.max_context, report)
    if not report:
        _check_model(model, report, counts)
    return _verdict(report, counts, began)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the cycle collector from walking the schedule again and again; nothing here makes cycles that matter."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _verdict(report: Report, counts: Counter[str], began: float) -> Verdict:
    findings = report.findings()
    seconds = time.perf_counter() - began
    return Verdict(
        outcome=outcome(findings), findings=findings, statistics=dict(sorted(counts.items())), seconds=seconds
    )


def _check_schedule(schedule: Schedule, report: Report, counts: Counter[str]) -> None:
    structure.check(schedule, report)
    expressible.check(schedule, report)
    if report:
        return
    capacity.check(schedule, report)
    stop.check(schedule, report)
    footprint.check(schedule, report)
    if 0 <= schedule.target.drift <= DRIFT_MAX:
        _check_model(of_schedule(schedule), report, counts)


def _check_model(model: AccessModel, report: Report, counts: Counter[str]) -> None:
    reach = domain(pos_low=model.pos_low, max_context=model.max_context, steps_max=model.steps_max, tokens=model.tokens)
    before = len(report.findings())
    regions.check_buffers(model, report)
    regions.check(model, reach, report)
    launch.check(model, report)
    if len(report.findings()) > before:
        return
    try:
        accesses = collect(model)
        counts["classes"] = sum(len(found.table.boxes) for found in accesses.values())
        tagged = [found for found in accesses.values() if found.buffer.tagged]
        program = of_model(model)
        if tag_writer.check(tagged, program, reach, report):
            for part in by_tag_waits(accesses, reach):
                _check_part(_Part(model=model, reach=part, accesses=accesses, program=program), report, counts)
    except (TooManySweepsError, TooManyPiecesError) as error:
        report.add(window_rule.RULE, str(error), unknown=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Launches in which the same tasks wait for each other."""

    model: AccessModel
    reach: Domain
    accesses: Mapping[str, Accesses]
    program: Program


def _check_part(part: _Part, report: Report, counts: Counter[str]) -> None:
    model, reach, accesses, program = part.model, part.reach, part.accesses, part.program
    occurring = program.with_gates_as_waits().with_tag_waits(tag_edges(accesses, reach, fenced_only=False))
    if not deadlock.check(occurring, report):
        return
    visible = program.with_tag_waits(tag_edges(accesses, reach, fenced_only=True))
    mattering = mattering_streams(accesses, model.written)
    sight = window(visible, steps_max=model.steps_max, drift=model.drift, mattering=mattering)
    occurrence = None
    if any(found.buffer.tagged for found in accesses.values()):
        occurrence = window(occurring, steps_max=model.steps_max, drift=0, mattering=frozenset(), reads_data=False)
    counts["window"] = max(counts["window"], sight.order.steps)
    context = Context(
        model=model,
        reach=reach,
        accesses=accesses,
        program=program,
        visible=visible,
        sight=sight,
        occurrence=occurrence,
        counts=counts,
    )
    _check_order(context, report)


def _check_order(context: Context, report: Report) -> None:
    found = len(report.findings())
    race.check(context, report)
    tag_overwritten.check(context, report)
    tag_order.check(context, report)
    outputs.check(context, report)
    if len(report.findings()) == found or not report.refuted:
        # Which write is the last one means something only where writes and reads are in order.
        reads.check(context, report)
        kv.check(context, report)
