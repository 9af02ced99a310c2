"""What ``amk audit`` prints for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from amk.cli.output import OUT

if TYPE_CHECKING:
    from amk.contracts.audit import Audit
    from amk.contracts.calibrate import Calibration


def print_audit(found: Audit) -> None:
    """Verdict counts, the standard test beside them, and where the report is."""
    table = Table("verdict", box=None, pad_edge=False)
    table.add_column("kernels", justify="right")
    for status, count in found.statistics.statuses.items():
        table.add_row(status, f"{count:,}")
    OUT.print(table)
    for contingency in found.statistics.contingency:
        missed = contingency.missed
        if missed.of:
            OUT.print(
                f"of {missed.of:,} that the standard test accepts at {contingency.tolerance}, {missed.count:,} do not "
                f"conform: {missed.rate:.1%} ({missed.low:.1%} to {missed.high:.1%})"
            )
    if found.resumed:
        OUT.print(f"{found.resumed:,} of them were in the journal")
    if not found.complete:
        OUT.print("interrupted: the same command goes on from here")
    OUT.print(f"written {found.out / 'report.html'} and {found.out / 'report.json'}")


def print_calibration(found: Calibration) -> None:
    """The largest kappa that a right kernel needs, by gate and dtype; and the alarms at each kappa."""
    gates = sorted({row.gate for row in found.rows})
    dtypes = list(dict.fromkeys(row.dtype for row in found.rows))
    needs = Table("the largest kappa needed", *gates, box=None, pad_edge=False)
    for dtype in sorted(dtypes):
        needs.add_row(dtype, *(_kappa(found.silent_of(gate, dtype)) for gate in gates))
    needs.add_row("all", *(_kappa(found.silent.get(gate)) for gate in gates))
    OUT.print(needs)
    alarms = Table("false alarms at kappa", *gates, box=None, pad_edge=False)
    counts = {(each.gate, each.kappa): f"{each.alarms} of {each.kernels}" for each in found.alarms}
    for kappa in sorted({each.kappa for each in found.alarms}):
        granted = ", granted" if kappa == found.granted else ""
        alarms.add_row(f"{kappa:g}{granted}", *(counts.get((gate, kappa), "-") for gate in gates))
    OUT.print(alarms)
    for row in found.rows:
        if row.kappa is not None and row.kappa > found.granted:
            OUT.print(f"{row.gate} accuses {row.kernel}, {row.dtype}, size x{row.scale}: it needs {_kappa(row.kappa)}")


def _kappa(kappa: float | None) -> str:
    return "-" if kappa is None else f"{kappa:.3g}"
