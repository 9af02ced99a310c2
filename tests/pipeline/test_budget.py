"""What compiling costs: memory, and on a warm cache no framework at all."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import Run

PROGRAM = """
import re, sys
from pathlib import Path
import amk
model = amk.compile("Llama-3.2-1B", arch="sm_90", progress=False)
assert "PROVED" in model.report().certificate
heavy = sorted({"torch", "transformers"} & set(sys.modules))
# Not getrusage's figure: that one begins with what the process that started this one held.
print(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1], *heavy)
"""


def test_a_1b_model_compiles_small_and_warm_without_frameworks(amk_home: Path, run_python: Run) -> None:
    cold = run_python(PROGRAM)
    assert cold.returncode == 0, cold.stderr
    peak_kb, *heavy = cold.stdout.split()
    assert heavy == ["torch", "transformers"]
    assert int(peak_kb) < 2_000_000
    warm = run_python(PROGRAM)
    assert warm.returncode == 0, warm.stderr
    assert warm.stdout.split()[1:] == []
