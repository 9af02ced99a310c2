"""Failures of a running model."""

from __future__ import annotations

from amk.errors import UsageError


class SupersededError(UsageError):
    code = "AMK-R610"
    what = "another generation was started on this model before this stream had ended"
    mend = "finish or drop a stream before starting the next; load the model twice to run two at once"


class TooManyEosError(UsageError):
    code = "AMK-R611"
    what = "{count} end-of-text tokens were given, and a launch checks at most {most}"
    mend = "pass fewer ids as eos_token_id"
