"""What a benchmark leaves: every sample, what they were taken on, and the verdict on the binary that was timed.

Reading these records needs no framework, so that tables are rendered where nothing is measured.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Final

import msgspec

from amk.ir.record import Record
from amk.settings import write_atomically

AMK: Final = "amk"
"""The name of amk's own arm."""

LEFT_OUT: Final = "left out: the time that it was given was over"
"""The failure of a row that was not measured, or not to its end."""


class Limits(Record):
    """What the machine itself can do; medians.

    Attributes
    ----------
    target, workers
        The chip, and the blocks that ran on it.
    memory_bytes
        Read again and again: more than its cache holds.
    read_bytes_per_s
        Of every block at once, through a ring, under the target's cap on bytes in flight.
    hop_us
        Every block adds to a counter and waits until all have, nothing else running.
    hop_streaming_us, streaming_bytes_per_s
        The same while every block reads, and how fast it then reads.
    """

    target: str
    workers: int
    memory_bytes: int
    read_bytes_per_s: float
    hop_us: float
    hop_streaming_us: float
    streaming_bytes_per_s: float


class Row(Record):
    """One arm at one context.

    Attributes
    ----------
    kv_bytes
        That a token reads of the positions before it, as this arm keeps them.
    weight_bytes
        That a token streams, where this arm keeps weights otherwise than amk does; else 0.
    us_per_token
        Every sample: wall clock of ``tokens`` tokens over their number.
    prompt_ms
        Every sample: wall clock of the ``context`` positions before them, to the first token.
    launches
        Of one sample, where they are counted; else 0.
    failure
        Why it has no samples, or no more of them; empty if it has them all.
    """

    arm: str
    context: int
    tokens: int
    kv_bytes: int
    us_per_token: tuple[float, ...]
    launches: int
    failure: str
    prompt_ms: tuple[float, ...] = ()
    weight_bytes: int = 0

    @property
    def median(self) -> float:
        """Of the samples."""
        return statistics.median(self.us_per_token)


class Parity(Record):
    """Of the binary that was timed, against HuggingFace float32.

    Attributes
    ----------
    failure
        Why the verdict is ``fail``.
    logit_range_max
        None where it is not a number.
    """

    verdict: str
    failure: str
    tokens: int
    ties: int
    logit_range_max: float | None
    logit_range_bound: float


class BenchResult(Record):
    """What was measured, on what.

    Attributes
    ----------
    weights
        Digest of config and weights.
    weight_bytes
        That a token streams: all weights but an untied embedding table.
    code
        Digest of the kernel's machine code; empty where there is none.
    rounds
        Samples that were asked for of each arm at each context.
    machine
        What ran it: names and versions.
    """

    model: str
    weights: str
    dtype: str
    kv_dtype: str
    weight_bytes: int
    code: str
    parity: Parity
    rounds: int
    rows: tuple[Row, ...]
    limits: Limits | None
    machine: dict[str, str]

    def times(self, row: Row) -> bool:
        """Whether the latency of ``row`` may be told: it has one, and amk's only with the parity of its binary."""
        return bool(row.us_per_token) and (row.arm != AMK or self.parity.verdict == "pass")

    def bytes_of(self, row: Row) -> int:
        """That a token reads: weights, keys and values."""
        return (row.weight_bytes or self.weight_bytes) + row.kv_bytes

    def bytes_per_s(self, row: Row) -> float:
        """That a token reads, over the time that it takes."""
        return self.bytes_of(row) / row.median * 1e6

    def write(self, path: Path) -> None:
        """As JSON, in one order."""
        write_record(self, path)


def write_record(record: Record, path: Path) -> None:
    """As JSON, in one order, whole or not at all."""
    data = msgspec.json.format(msgspec.json.encode(record, order="sorted"), indent=1)
    write_atomically(path, data + b"\n", fix="choose another output path")
