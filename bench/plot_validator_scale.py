"""Draws bench/results/validator/scale.png from scale.json beside it: ``python bench/plot_validator_scale.py``.

Needs matplotlib, which nothing else here does: ``pip install matplotlib`` in an environment of its own will do.
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

FOLDER = Path(__file__).resolve().parent / "results" / "validator"
BLUE, GREY = "#1f5fa8", "#9aa3ad"


def main() -> None:
    """Read, draw, write."""
    found = json.loads((FOLDER / "scale.json").read_text(encoding="utf-8"))
    rows = found["rows"]
    tasks = [row["tasks"] for row in rows]
    best = [min(row["seconds"]) for row in rows]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), constrained_layout=True)

    left.plot(tasks, [row["us_per_task"] for row in rows], "o-", color=BLUE, markersize=4)
    left.set_ylim(0, 1.4 * max(row["us_per_task"] for row in rows))
    left.set_ylabel("µs of processor time a task")
    left.set_title("Time a task does not grow", loc="left", fontsize=10)

    right.plot(tasks, best, "o-", color=BLUE, markersize=4, label="seconds")
    right.set_ylabel("seconds, best of three", color=BLUE)
    right.set_yscale("log")
    right.set_title("Time to a verdict, and peak memory", loc="left", fontsize=10)
    memory = right.twinx()
    memory.plot(tasks, [row["peak_mb"] for row in rows], "s--", color=GREY, markersize=3)
    memory.set_ylabel("peak MB of the process", color=GREY)
    memory.set_ylim(0, None)

    whole = next(row for row in rows if row["layers"] == 32)
    note = f"Llama-3.1-8B: {min(whole['seconds']):.2f} s, {whole['peak_mb']:.0f} MB"
    right.annotate(
        note,
        (whole["tasks"], min(whole["seconds"])),
        xytext=(0.97, 0.06),
        textcoords="axes fraction",
        ha="right",
        fontsize=8,
        arrowprops={"arrowstyle": "-", "color": GREY},
    )
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xlabel("tasks of a step")
        axes.spines[["top"]].set_visible(False)
        axes.grid(visible=True, alpha=0.25)
    left.spines["right"].set_visible(False)
    figure.suptitle(f"amk validate: {found['model'].split(';')[0]}; {found['machine']}", fontsize=8, color="#555555")
    figure.savefig(FOLDER / "scale.png", dpi=120)


if __name__ == "__main__":
    main()
