"""Results as tables and plots: ``python -m bench.render bench/results/h200/*.json --out docs/``.

Writes ``latency.md``, ``roofline.png`` and ``context.png``. Every figure comes from a file that is named beside it; of
each workload the newest run is taken, and files that are no runs of ``bench.run`` are named and passed over. The plots
need matplotlib, as ``bench/plot_validator_scale.py`` does; the tables need nothing.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from amk.measure.result import AMK, LEFT_OUT, Row
from bench.runs import CONTEXT_SLACK_US, KV_BYTES_PER_S, KV_SLACK, Run, newest, read_run

HEAD = f"""# Latency

Written by `python -m bench.render` from the files that the tables link to; no figure is typed. Batch 1, greedy, one
token after another. All arms of a file took turns in one process on the same weights; a sample is the wall clock of
several tokens over their number.

- *of the read rate*: the weights and KV cache that a token reads, over its time, against what the chip read in the
  same run.
- *prompt*: until the first token behind the context was there, median; PyTorch's arms all process it eagerly.
- *launches a token*: counted, where they are.
- *speed-up*: the time of the fastest PyTorch arm at that context over this arm's.
- *bar*: amk at its least context + {KV_SLACK:g} x KV bytes / {KV_BYTES_PER_S / 1e12:g} TB/s + {CONTEXT_SLACK_US:g} µs.
- *parity*: of the binary that was timed, with HuggingFace float32. Without it a latency is withheld.
"""

COLUMNS = (
    "model",
    "context",
    "arm",
    "µs a token, median",
    "least – most",
    "samples",
    "MB a token",
    "TB/s",
    "of the read rate",
    "launches a token",
    "prompt, ms",
    "speed-up",
    "bar, µs",
    "parity",
    "file",
)

RUN_COLUMNS = (
    "model",
    "weights",
    "weight MB a token",
    "KV",
    "read rate, TB/s",
    "hop, µs: idle; while reading",
    "parity",
    "machine",
    "ended",
    "file",
)

NOTHING = "–"


def main(words: Sequence[str] | None = None) -> int:
    """Render the files on the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.render", description="Results as tables and plots.")
    parser.add_argument("files", nargs="+", type=Path, help="results of bench.run")
    parser.add_argument("--out", type=Path, required=True, help="folder of latency.md and the plots")
    asked = parser.parse_args(words)
    found = []
    for path in asked.files:
        run = read_run(path)
        if run is None:
            print(f"{path}: no run of bench.run, passed over", file=sys.stderr)
        else:
            found.append((path, run))
    runs = newest(found)
    if not runs:
        print("none of these files is a run of bench.run", file=sys.stderr)
        return 2
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "latency.md").write_text(page(runs, asked.out), encoding="utf-8")
    if importlib.util.find_spec("matplotlib") is None:
        print("latency.md is written; the plots need matplotlib: pip install matplotlib", file=sys.stderr)
        return 1
    from bench import plots

    plots.roofline([run for _, run in runs], asked.out / "roofline.png")
    plots.contexts([run for _, run in runs], asked.out / "context.png")
    return 0


def page(runs: Sequence[tuple[Path, Run]], out: Path) -> str:
    """The whole of ``latency.md`` in the folder ``out``."""
    measured = [cells for path, run in runs for cells in _rows(run, _link(path, out))]
    ran = [_about(run, _link(path, out)) for path, run in runs]
    pictures = (
        "![µs a token against weight bytes, all arms](roofline.png)\n\n"
        "![µs a token against context, a panel a model](context.png)\n"
    )
    return "\n".join([HEAD, _table(COLUMNS, measured), pictures, "## Runs\n", _table(RUN_COLUMNS, ran)])


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)


def _link(path: Path, out: Path) -> str:
    return f"[{path.stem}]({Path(os.path.relpath(path.resolve(), out.resolve())).as_posix()})"


def _rows(run: Run, link: str) -> list[list[str]]:
    lines = []
    for row in sorted(run.rows, key=lambda row: row.context):
        parity = _verdict(run) if row.arm == AMK else NOTHING
        lines.append([run.title, f"{row.context:,}", row.arm, *_figures(run, row), parity, link])
    return lines


def _figures(run: Run, row: Row) -> list[str]:
    """The cells from the median to the bar; why there are none in the first of them."""
    result = run.result
    if result is None or not result.times(row):
        why = "**withheld: parity fails**" if row.us_per_token else _first_line(row.failure)
        return [why, *[NOTHING] * 9]
    rate, best = result.bytes_per_s(row), run.best_torch_us(row.context)
    bar = run.bar_us(row) if row.arm == AMK else None
    return [
        f"{row.median:,.1f}",
        f"{min(row.us_per_token):,.1f} – {max(row.us_per_token):,.1f}",
        f"{len(row.us_per_token)} of {result.rounds}",
        f"{result.bytes_of(row) / 1e6:,.0f}",
        f"{rate / 1e12:.2f}",
        f"{rate / result.limits.read_bytes_per_s:.0%}" if result.limits else NOTHING,
        f"{row.launches / row.tokens:.3f}" if row.launches else NOTHING,
        f"{statistics.median(row.prompt_ms):,.1f}" if row.prompt_ms else NOTHING,
        f"{best / row.median:.2f}" if best is not None else NOTHING,
        f"{bar:,.0f}, {'met' if row.median <= bar else '**missed**'}" if bar is not None else NOTHING,
    ]


def _verdict(run: Run) -> str:
    if run.result is None:
        return NOTHING
    parity = run.result.parity
    if parity.verdict != "pass":
        return f"**fail**: {_first_line(parity.failure)}"
    return f"pass, {parity.tokens} tokens, {parity.ties} ties, r {parity.logit_range_max:.1g}"


def _about(run: Run, link: str) -> list[str]:
    """What a run was measured on."""
    cut = any(row.failure == LEFT_OUT for row in run.rows)
    ended = _first_line(run.failure) or ("in part" if cut else "complete")
    if run.budget_s is not None:
        ended += f", within {run.budget_s:,.0f} s"
    if run.result is None:
        return [run.title, run.weights, *[NOTHING] * 5, run.target, ended, link]
    result, limits = run.result, run.result.limits
    machine = dict(result.machine)
    names = [machine.pop("gpu", ""), *(f"{name} {version}" for name, version in sorted(machine.items()))]
    return [
        run.title,
        f"{result.dtype}, {run.weights}",
        f"{result.weight_bytes / 1e6:,.0f}",
        result.kv_dtype,
        f"{limits.read_bytes_per_s / 1e12:.2f}" if limits else NOTHING,
        f"{limits.hop_us:.2f}; {limits.hop_streaming_us:.2f}" if limits else NOTHING,
        f"{_verdict(run)} (bound {result.parity.logit_range_bound:g}), code {result.code[:12] or NOTHING}",
        f"{', '.join(filter(None, names))}; commit {run.commit}",
        ended,
        link,
    ]


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else ""


if __name__ == "__main__":
    sys.exit(main())
