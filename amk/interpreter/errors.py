"""Failures of the reference machine."""

from __future__ import annotations

from amk.errors import EXIT_FAILED, AmkError, UsageError


class MachineStuckError(AmkError):
    code = "AMK-R650"
    what = "the schedule deadlocks at step {step}: {blocked}"
    mend = "validate the schedule first: `amk validate` names the cycle or the wait that cannot be met"
    exit_code = EXIT_FAILED


class BadLaunchError(UsageError):
    code = "AMK-R651"
    what = "a launch of {steps} steps of {tokens} rows from position {pos} is outside what the schedule covers"
    mend = "use 1 to {high} rows a step, at least one step, and stay within {context} positions"
