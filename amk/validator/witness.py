"""Witnesses a person can follow: what two accesses do, when, and which order between them is missing."""

from __future__ import annotations

from dataclasses import dataclass

from amk.ir.regions import POS, TOKENS
from amk.validator.accesses import STREAM, WRITE, Accesses, verb
from amk.validator.boxes import meeting_point
from amk.validator.context import Context
from amk.validator.firing import run

Access = tuple[int, int, int]  # task, kind, box


@dataclass(frozen=True, slots=True, kw_only=True)
class Clash:
    """Two conflicting accesses of one buffer: ``second`` is ``delta`` steps after ``first``."""

    found: Accesses
    first: Access
    second: Access
    delta: int


def tell_clash(context: Context, clash: Clash) -> tuple[str, str]:
    """What is wrong and a change that would order the two."""
    (x, x_kind, x_box), (y, y_kind, y_box) = clash.first, clash.second
    program, found = context.program, clash.found
    one = f"{program.describe(x, 0)} {verb(x_kind)} {found.show(x_box)}"
    two = f"{program.describe(y, clash.delta)} {verb(y_kind)} {found.show(y_box)}"
    point = meeting_point(found.table, x_box, y_box, clash.delta, context.reach)
    where = f" with {POS}={point[0]}, {TOKENS}={point[1]}" if point else ""
    if x == y and clash.delta == 0:
        return f"{one} and again {found.show(y_box)}{where}: its lanes are in no order", ""
    return f"{one} and {two}{where}; {_why(context, clash)}", _mend(context, clash)


def _why(context: Context, clash: Clash) -> str:
    (x, x_kind, _), (y, y_kind, _) = clash.first, clash.second
    program = context.program
    if max(x_kind, y_kind) >= STREAM:
        task, kind = (y, y_kind) if y_kind >= STREAM else (x, x_kind)
        gates = ", ".join(program.show(need) for need in program.gates[task][kind - STREAM]) or "none"
        return f"the stream may begin before the write: its gates in {program.names[task]} are {gates}"
    if program.worker[x] == program.worker[y] and x_kind == WRITE:
        drift, name = context.model.drift, program.names[x]
        return f"both are on one worker, whose warps drift by {drift} tasks, and no wait between them needs {name}"
    late = y + clash.delta * program.tasks
    firing = run(context.visible, context.sight.order.steps, withheld=frozenset({x, late}))
    both = {x, late} <= firing.held
    return "both are ready with neither published: nothing orders them" if both else "nothing orders them"


def _mend(context: Context, clash: Clash) -> str:
    (x, x_kind, _), (y, y_kind, _) = clash.first, clash.second
    program = context.program
    # In the firing order of a step the earlier task should go first; between steps the earlier step.
    if clash.delta == 0 and context.sight.order.rank[x] > context.sight.order.rank[y]:
        x, x_kind, y, y_kind = y, y_kind, x, x_kind
    if x_kind >= STREAM and clash.delta == 0:
        x, x_kind, y, y_kind = y, y_kind, x, x_kind
    kind = "gate" if y_kind >= STREAM else "wait"
    for counter in program.signals[x]:
        steps_back = clash.delta
        if steps_back <= 1:
            threshold = program.per_step[counter] * (1 - steps_back)
            return f"add to {program.names[y]} the {kind} ({program.counters[counter]}, {threshold})"
    return f"let {program.names[x]} signal a counter that is a {kind} of {program.names[y]}"
