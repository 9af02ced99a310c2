"""Expressible.

    This version proves launches of one device and one sequence whose symbols are pos and tokens, with
    0 <= pos.low, 1 <= tokens, and room for at least one step.

Bounds that are not linear in the symbols, ring KV, cluster-scope exchange and dependent launches cannot be written in
the format; what can be written and is not proved is refused here by name.
"""

from __future__ import annotations

from typing import Final

from amk.ir.regions import POS, TOKENS
from amk.ir.schedule import Schedule
from amk.validator.findings import Report, Rule
from amk.validator.limits import TOKENS_MAX

RULE: Final = Rule(code="AMK-V317", title="not supported", statement=__doc__ or "")


def check(schedule: Schedule, report: Report) -> None:
    """Report features of the format that this version does not prove."""
    if schedule.devices != 1:
        report.add(RULE, f"devices={schedule.devices}: this version proves schedules of one device")
    if schedule.sequences != 1:
        report.add(RULE, f"sequences={schedule.sequences}: this version proves schedules of one sequence")
    elsewhere = [f"buffer {buffer.id}" for buffer in schedule.buffers if buffer.device]
    elsewhere += [f"counter {counter.id}" for counter in schedule.counters if counter.device]
    elsewhere += [f"queue {queue.index}" for queue in schedule.queues if queue.device]
    if elsewhere:
        report.add(RULE, f"{elsewhere[0]} is on a second device: this version proves schedules of one device")
    names = [symbol.name for symbol in schedule.symbols]
    if sorted(names) != sorted((POS, TOKENS)):
        shown = ", ".join(names) or "none"
        report.add(RULE, f"symbols are {shown}: this version proves schedules over {POS} and {TOKENS}")
        return
    pos, tokens = schedule.symbol(POS), schedule.symbol(TOKENS)
    if not 0 <= pos.low <= pos.high:
        report.add(RULE, f"{POS} ranges over {pos.low} .. {pos.high}: positions begin at 0 or later")
    check_range(pos.low, (tokens.low, tokens.high), schedule.max_context, report)


def check_range(pos_low: int, tokens: tuple[int, int], max_context: int, report: Report) -> None:
    """The part that also holds for a bare model."""
    low, high = tokens
    if not 1 <= low <= high <= TOKENS_MAX:
        report.add(RULE, f"{TOKENS} ranges over {low} .. {high}: a step has 1 to {TOKENS_MAX} rows")
    if pos_low < 0 or pos_low + low > max_context:
        report.add(RULE, f"no step of {low} rows from {POS}={pos_low} fits max_context={max_context}")
