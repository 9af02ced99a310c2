"""Streams.

The producer of a worker reads the streams of its tasks ahead of time, in order. A stream of x is read in
[sigma, R(x)], where sigma follows only its own gate and the gates of the streams before it, not any task's B or P.
Weights, constants and inputs are never written in a launch and need no gate. For any other buffer, every write z that
overlaps the stream needs

    z -> sigma, from gates alone, or x -> z, or z not before x on x's own worker.

A wait of the task is no gate: the producer does not make it. Checked together with the race rule, at every distance
of the window; C(D) covers the rest. Tagged words cannot be streamed: nobody would check the tag.
"""

from __future__ import annotations

from typing import Final

from amk.validator.findings import Rule

RULE: Final = Rule(code="AMK-V310", title="stream not gated", statement=__doc__ or "")
