"""Failures of the reference machine."""

from __future__ import annotations

from amk.errors import EXIT_FAILED, AmkError


class MachineStuckError(AmkError):
    code = "AMK-R650"
    what = "the schedule deadlocks at step {step}: {blocked}"
    mend = "validate the schedule first: `amk validate` names the cycle or the wait that cannot be met"
    exit_code = EXIT_FAILED
