"""Window.

    C(D): for each worker, with its last task of step 0 withheld, D steps of Run leave no head and no gated stream of
    step D ready.

If C(D) holds then pairs at distance >= D are ordered, and the D-step Run decides x@0 against y@0 .. y@(D-1) for all t
and S. It is computed for -> (untagged data) and for ~> (tags), with D = 2, then 3 and 4: of heads for what tasks
access, of streams too for what producers access. If none holds and a launch has at most 4 steps, all of them are
unrolled. Otherwise violations found in a launch of 4 steps are real, accesses that share no word at any distance are
safe, and the rest is UNKNOWN: nothing bounds how far apart two workers are.
"""

from __future__ import annotations

from typing import Final

from amk.validator.context import Context
from amk.validator.findings import Report, Rule

RULE: Final = Rule(code="AMK-V390", title="steps not joined", statement=__doc__ or "")

_MEND: Final = (
    "let the last task of every worker signal one counter, and every queue open with a wait for all of it (threshold "
    "0), so that no worker is ever two steps ahead of another"
)


def leave_open(context: Context, report: Report, what: str) -> None:
    """Report that ``what`` could not be decided for every number of steps."""
    steps = context.sight.order.steps
    text = f"{what}: in order in a launch of {steps} steps, but one of {context.model.steps_max} may differ"
    report.add(RULE, text, mend=_MEND, unknown=True)
