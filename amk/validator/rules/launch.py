"""Launch state.

    weight, const and input buffers are never written in a launch; KV rows [0, pos0) and what is read with lag 1 at
    step 0 are what the launch finds.

So a write of such a buffer is refused: another launch, or another worker, relies on its not happening.
"""

from __future__ import annotations

from typing import Final

from amk.validator.accesses import FIXED_KINDS
from amk.validator.findings import Report, Rule
from amk.validator.model import AccessModel

RULE: Final = Rule(code="AMK-V318", title="constant written", statement=__doc__ or "")


def check(model: AccessModel, report: Report) -> None:
    """Report every write of a buffer that never changes."""
    for node in model.nodes():
        for write in node.writes:
            buffer = model.buffer.get(write.region.buffer)
            if buffer is not None and buffer.kind in FIXED_KINDS:
                text = f"{node.id} writes {buffer.id}, which is of kind {buffer.kind}"
                report.add(RULE, text, mend=f"write another buffer, or declare {buffer.id} as one that changes")
