"""Runs with figures that no machine gave, to render."""

from __future__ import annotations

from msgspec.structs import replace

from amk.measure.result import AMK, BenchResult, Limits, Parity, Row
from bench.runs import FORMAT, Run

READ = 4.0e12
PASS = Parity(verdict="pass", failure="", tokens=16, ties=0, logit_range_max=1e-4, logit_range_bound=0.05)
FAIL = replace(PASS, verdict="fail", failure="probe: token 3: amk chose 5, the oracle 7\nand more")


def row(arm: str, context: int, *samples: float, kv_bytes: int = 0, failure: str = "") -> Row:
    return Row(
        arm=arm,
        context=context,
        tokens=64,
        kv_bytes=kv_bytes,
        us_per_token=samples,
        launches=1 if arm == AMK else 0,
        failure=failure,
        prompt_ms=tuple(us / 10 for us in samples),
    )


def run(title: str, weight_bytes: int, *rows: Row, parity: Parity = PASS, date: str = "2001-02-03T04:05:06") -> Run:
    result = BenchResult(
        model="made up",
        weights="0" * 64,
        dtype="bf16",
        kv_dtype="float32",
        weight_bytes=weight_bytes,
        code="c0de" * 16,
        parity=parity,
        rounds=3,
        rows=rows,
        limits=Limits(
            target="h200",
            workers=132,
            memory_bytes=1 << 30,
            read_bytes_per_s=READ,
            hop_us=1.2,
            hop_streaming_us=2.5,
            streaming_bytes_per_s=READ,
        ),
        machine={"gpu": "No GPU", "torch": "0.0"},
    )
    return Run(
        format=FORMAT,
        workload=title.lower(),
        title=title,
        weights="random, seed 0",
        target="h200",
        commit="abc1234",
        date=date,
        budget_s=None,
        failure="",
        result=result,
    )


def model(title: str, weight_bytes: int, kv_bytes: int, *, parity: Parity = PASS) -> Run:
    """A run whose arms take times of about the right size, at three contexts."""
    rows = []
    for context in (128, 2048, 8192):
        kv = kv_bytes * context
        floor = (weight_bytes + kv) / READ * 1e6
        for arm, us in ((AMK, floor + 120), ("compile-graph", 1.4 * floor + 900), ("eager", 1.5 * floor + 9000)):
            rows.append(row(arm, context, us, us + 2, us + 1, kv_bytes=kv))
    return run(title, weight_bytes, *rows, parity=parity)
