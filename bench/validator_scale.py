"""Time and memory of the validator against the number of tasks: ``python bench/validator_scale.py out.json``.

Llama-3.1-8B's layer for 132 workers, with more and more layers, up to 100,000 tasks; and Llama-3.1-8B as it is. Each
size runs in a process of its own, on one core, and keeps the best of three: what others do on the machine only adds.
Seconds are those of the processor (user + system), measured in the validator's process around ``validate``.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYERS = (2, 4, 9, 18, 32, 44, 88, 132, 177)
REPEATS = 3

MEASURE = """
import json, resource, sys, time
from amk.target import TARGETS
from amk.validator import validate, validator_digest
from amk.ir.schedule import Schedule
from tests.builders import llama_graph, lower

layers, repeats = int(sys.argv[1]), int(sys.argv[2])
graph = llama_graph(
    hidden=4096, layers=layers, heads=32, kv_heads=8, head_dim=128, intermediate=14336, vocab=128256, tied=False
)
data = lower(graph, TARGETS["h200"], max_context=8192).to_json()
del graph
schedule = Schedule.from_json(data)
times = []
for _ in range(repeats):
    began = time.process_time()
    verdict = validate(schedule)
    times.append(time.process_time() - began)
print(json.dumps({
    "layers": layers,
    "tasks": len(schedule.tasks),
    "workers": len(schedule.queues),
    "verdict": verdict.outcome.value,
    "checks": verdict.statistics["checks"],
    "seconds": [round(one, 4) for one in times],
    "us_per_task": round(min(times) / len(schedule.tasks) * 1e6, 2),
    "file_mb": round(len(data) / 1e6, 1),
    "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    "validator": validator_digest(),
}))
"""


def main() -> None:
    """Measure and write."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    rows = []
    for layers in LAYERS:
        command = [sys.executable, "-c", MEASURE, str(layers), str(REPEATS)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=ROOT)
        rows.append(json.loads(done.stdout))
        print(rows[-1])
    document = {
        "command": "python bench/validator_scale.py",
        "machine": f"one core of {platform.machine()}, Python {platform.python_version()}",
        "model": "Llama-3.1-8B's layer, 132 workers (h200), context 8192; 32 layers are Llama-3.1-8B itself",
        "validator": rows[0].pop("validator"),
        "rows": [{key: value for key, value in row.items() if key != "validator"} for row in rows],
    }
    Path(sys.argv[1]).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
