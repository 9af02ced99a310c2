"""What a gate finds of a kernel, and what all of them say together: records that a report is made of."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from amk.ir.record import Record

Verdict = Literal["pass", "violation", "not applicable", "reject"]
"""``reject``: the kernel refused the input by a clean error, where the reference did not: a narrower domain."""

Status = Literal["conforms", "violation", "broken", "failed", "not judged"]
"""``broken``: a gate of ``BREAKING`` found a violation. ``failed``: the kernel does not load, or does not live through
its own nominal inputs. ``not judged``: the reference, or the record, is at fault, not the kernel."""

BREAKING: Final = frozenset({"G01", "G02", "G03", "G04", "G06", "G08", "G09", "G11"})
"""Gates whose violation says that the answer is wrong, whatever tolerance one would grant."""

STANDARD: Final = "G00"
"""The test that benchmarks use: for comparison only, it decides nothing."""


class Failing(Record):
    """The smallest input that was found to fail.

    Attributes
    ----------
    case
        What was done, in a line: ``NaN at the last element of input 1``.
    inputs
        Each argument: ``float32[7, 33]``, with strides where they are not those of a contiguous tensor.
    data
        The arguments as safetensors, tensors by their place (``0``, ``1`` ...); empty where they are too large to keep.
    """

    case: str
    inputs: tuple[str, ...]
    data: bytes = b""


class Finding(Record):
    """A gate's verdict.

    Attributes
    ----------
    gate
        ``G00`` to ``G12``.
    why
        One sentence: what differed, or why it does not apply; of a pass, what was compared.
    cases
        Comparisons that were adjudicated.
    seed
        Of the trial: with it the gate does the same again.
    figures
        What the gate measured, by name.
    failing
        Of a violation or a reject.
    """

    gate: str
    verdict: Verdict
    why: str
    cases: int
    seed: int
    figures: dict[str, float] = msgspec.field(default_factory=dict)
    failing: Failing | None = None


class Judgement(Record):
    """All that was found of one kernel.

    Attributes
    ----------
    why
        Of a kernel that failed or was not judged, the reason; of others empty.
    seconds
        Wall clock.
    """

    kernel: str
    status: Status
    why: str
    findings: tuple[Finding, ...]
    device: str
    dtype: str
    seed: int
    seconds: float

    def finding(self, gate: str) -> Finding | None:
        """What ``gate`` found; None where it was not asked."""
        return next((finding for finding in self.findings if finding.gate == gate), None)

    def __str__(self) -> str:
        """A line on the kernel, then one a gate, and what shows a violation or a reject."""
        lines = [f"{self.kernel}: {self.status} ({self.device}, {self.dtype}, seed {self.seed}, {self.seconds:.1f} s)"]
        if self.why:
            lines.append(f"  {self.why}")
        for finding in self.findings:
            cases = f" [{finding.cases} cases]" if finding.cases else ""
            lines.append(f"  {finding.gate}  {finding.verdict:<14}  {finding.why}{cases}")
            if finding.failing is not None:
                lines.append(f"       with {', '.join(finding.failing.inputs)}: {finding.failing.case}")
        return "\n".join(lines)


def status_of(findings: tuple[Finding, ...]) -> Status:
    """What findings amount to."""
    violated = {finding.gate for finding in findings if finding.verdict == "violation"} - {STANDARD}
    if violated & BREAKING:
        return "broken"
    return "violation" if violated else "conforms"
