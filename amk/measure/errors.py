"""Failures of measurements."""

from __future__ import annotations

from amk.errors import EXIT_FAILED, AmkError


class NonFiniteLogitsError(AmkError):
    code = "AMK-P720"
    what = "{arm} gives logits that are NaN or infinite, first in the window at token {token}: nothing can be compared"
    mend = "mend the checkpoint: look for gains that are NaN, and for weights so large that sums overflow"
    exit_code = EXIT_FAILED
