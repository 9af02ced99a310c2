"""Deadlock-free.

    One step of Run({}) completes, with gates counted as waits, and the tag rules hold.

Exact for every number of steps: in each step the counters stand where they stood in the first, plus what a step adds.
A threshold that needs more signals than a step gives is never reached in a launch of one step. Witness: the cycle of
workers, each blocked on a signal of the next; or the threshold that nothing can reach.
"""

from __future__ import annotations

from typing import Final

from amk.validator.findings import Report, Rule
from amk.validator.firing import Firing, failing, run
from amk.validator.program import Need, Program

RULE: Final = Rule(code="AMK-V302", title="deadlock", statement=__doc__ or "")


def check(program: Program, report: Report) -> bool:
    """Report a step of ``program`` (tags and gates as waits) that cannot end; whether it can."""
    firing = run(program, 1)
    blocked = [worker for worker, length in enumerate(program.length) if firing.position[worker] < length]
    if not blocked:
        return True
    unreachable = False
    for worker in blocked:
        task, _, needs = failing(program, firing, worker)
        for need in needs:
            if need.threshold > program.per_step[need.counter]:
                unreachable = True
                report.add(RULE, _unreachable(program, task, need), mend=_lower(program, need))
    if not unreachable:
        report.add(RULE, _cycle(program, firing, blocked))
    return False


def _unreachable(program: Program, task: int, need: Need) -> str:
    total = program.per_step[need.counter]
    return (
        f"{program.describe(task)} waits for {program.show(need)}, but a step gives {program.counters[need.counter]} "
        f"{total} signals: the threshold is never reached in the last step of a launch"
    )


def _lower(program: Program, need: Need) -> str:
    total = program.per_step[need.counter]
    return f"lower the threshold to {total}, or signal {program.counters[need.counter]} more often"


def _cycle(program: Program, firing: Firing, blocked: list[int]) -> str:
    import networkx as nx  # only a witness needs it

    graph = nx.DiGraph()
    reason: dict[tuple[int, int], str] = {}
    for worker in blocked:
        task, _, needs = failing(program, firing, worker)
        for need in needs:
            for late in program.signallers[need.counter].tolist():
                owner = int(program.worker[late])
                if program.index[late] >= firing.position[owner]:
                    graph.add_edge(worker, owner)
                    text = (
                        f"{program.describe(task)} waits for {program.show(need)}, which {program.names[late]} signals"
                    )
                    reason.setdefault((worker, owner), text)
    try:
        edges = nx.find_cycle(graph)
    except nx.NetworkXNoCycle:  # not reached: every blocked head waits for some task that has not fired
        edges = list(graph.edges)[:1]
    return "; ".join(reason[edge[0], edge[1]] for edge in edges)
