"""Tables and plots, from runs with figures that no machine gave."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from amk.measure.result import AMK, LEFT_OUT
from bench import render
from bench.runs import Run, newest, read_run
from tests.bench.made_up import FAIL, model, row, run


def table(text: str, *, of: int = 0) -> list[dict[str, str]]:
    """The rows of a table of a page, cells by column."""
    lines = [
        [cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines() if line.startswith("|")
    ]
    tables: list[list[list[str]]] = []
    for line, after in zip(lines, [*lines[1:], [""]], strict=True):
        if set(after[0]) == {"-"}:
            tables.append([])
        tables[-1].append(line)
    header, _, *rows = tables[of]
    return [dict(zip(header, cells, strict=True)) for cells in rows]


def rendered(tmp_path: Path, *runs: Run) -> str:
    results = tmp_path / "bench" / "results"
    return render.page(newest([(made.write(results), made) for made in runs]), tmp_path / "docs")


def test_the_figures_of_the_table(tmp_path: Path) -> None:
    made = run(
        "Made-1B",
        2_000_000_000,
        row(AMK, 128, 800.0, 500.0, 700.0, kv_bytes=4_000_000),
        row("eager", 128, 2800.0, 9000.0, 2100.0, kv_bytes=2_000_000),
        row("compile-graph", 128, 1400.0, 1300.0, 1500.0, kv_bytes=2_000_000),
        row(AMK, 8192, 900.0, 800.0, 790.0, kv_bytes=430_000_000),
    )
    found = table(rendered(tmp_path, made))
    assert [(cells["arm"], cells["µs a token, median"]) for cells in found] == [
        ("amk", "700.0"),
        ("eager", "2,800.0"),
        ("compile-graph", "1,400.0"),
        ("amk", "800.0"),
    ]
    ours, eager, best, far = found
    assert ours["least – most"] == "500.0 – 800.0"
    assert ours["samples"] == "3 of 3"
    assert ours["MB a token"] == "2,004"
    assert ours["TB/s"] == "2.86"  # 2,004 MB in 700 us
    assert ours["of the read rate"] == "72%"
    assert ours["launches a token"] == "0.016"
    assert ours["prompt, ms"] == "70.0"
    assert (ours["speed-up"], eager["speed-up"], best["speed-up"], far["speed-up"]) == ("2.00", "0.50", "1.00", "–")
    assert (ours["bar, µs"], far["bar, µs"], eager["bar, µs"]) == ("–", "835, met", "–")  # 700 + 115 + 20
    assert ours["parity"] == "pass, 16 tokens, 0 ties, r 0.0001"
    name = "2001-02-03-abc1234-made-1b"
    assert ours["file"] == f"[{name}](../bench/results/h200/{name}.json)"


def test_without_parity_a_latency_is_withheld(tmp_path: Path) -> None:
    made = run("Made-1B", 2_000_000_000, row(AMK, 128, 123.0), row("eager", 128, 456.0), parity=FAIL)
    text = rendered(tmp_path, made)
    ours, eager = table(text)
    assert ours["µs a token, median"] == "**withheld: parity fails**"
    assert ours["parity"] == "**fail**: probe: token 3: amk chose 5, the oracle 7"
    assert "123" not in "".join(text.replace("abc1234", ""))
    assert eager["µs a token, median"] == "456.0"
    assert eager["speed-up"] == "1.00"


def test_what_is_missing_says_why(tmp_path: Path) -> None:
    made = run(
        "Made-1B",
        2_000_000_000,
        row(AMK, 128, 100.0, failure=LEFT_OUT),
        row("cublas-graph", 128, failure="OutOfMemoryError: CUDA out of memory"),
    )
    lost = replace(
        run("Made-8B", 1), result=None, failure="BuildError: it spills\nhere", budget_s=60.0, workload="made-8b"
    )
    text = rendered(tmp_path, made, lost)
    ours, theirs = table(text)
    assert (ours["samples"], ours["µs a token, median"]) == ("1 of 3", "100.0")
    assert theirs["µs a token, median"] == "OutOfMemoryError: CUDA out of memory"
    assert [(cells["model"], cells["ended"]) for cells in table(text, of=1)] == [
        ("Made-8B", "BuildError: it spills, within 60 s"),
        ("Made-1B", "in part"),
    ]


def test_what_a_run_was_measured_on(tmp_path: Path) -> None:
    (cells,) = table(rendered(tmp_path, run("Made-1B", 2_000_000_000, row(AMK, 128, 700.0))), of=1)
    assert cells["weights"] == "bf16, random, seed 0"
    assert cells["read rate, TB/s"] == "4.00"
    assert cells["hop, µs: idle; while reading"] == "1.20; 2.50"
    assert cells["parity"].endswith("(bound 0.05), code c0dec0dec0de")
    assert cells["machine"] == "No GPU, torch 0.0; commit abc1234"
    assert cells["ended"] == "complete"


def test_the_newest_run_of_a_workload_counts(tmp_path: Path) -> None:
    old = run("Made-1B", 2_000_000_000, row(AMK, 128, 700.0), date="2001-02-03T04:05:06")
    new = run("Made-1B", 2_000_000_000, row(AMK, 128, 600.0), date="2001-03-01T00:00:00")
    (cells,) = table(rendered(tmp_path, new, old))
    assert cells["µs a token, median"] == "600.0"
    assert "2001-03-01" in cells["file"]


def test_a_file_of_another_kind_is_named_and_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "campaign.json"
    other.write_text('{"parity": {}}')
    out = tmp_path / "docs"
    assert render.main([str(other), "--out", str(out)]) == 2
    assert f"{other}: no run of bench.run" in capsys.readouterr().err
    path = model("Made-1B", 2_000_000_000, 65536).write(tmp_path)
    monkeypatch.setattr(render.importlib.util, "find_spec", lambda name: None)
    assert render.main([str(other), str(path), "--out", str(out)]) == 1
    assert "the plots need matplotlib" in capsys.readouterr().err
    assert len(table((out / "latency.md").read_text())) == 9
    path.write_text(path.read_text().replace('"weight_bytes"', '"weigth_bytes"'))
    with pytest.raises(msgspec.ValidationError, match="weigth_bytes"):
        read_run(path)


def test_the_plots_are_drawn(tmp_path: Path) -> None:
    runs = [
        model("Made-135M", 269_000_000, 46_080),
        model("Made-1B", 2_472_000_000, 65_536),
        model("Made-3B", 6_425_000_000, 229_376, parity=FAIL),
        model("Made-8B", 15_010_000_000, 262_144),
        replace(run("Made-70B", 1), result=None, failure="OutOfMemoryError: all of it"),
    ]
    files = [str(made.write(tmp_path / "results")) for made in runs]
    out = tmp_path / "docs"
    assert render.main([*files, "--out", str(out)]) == 0
    for picture in ("roofline.png", "context.png"):
        assert 10_000 < (out / picture).stat().st_size < 200_000
        assert f"({picture})" in (out / "latency.md").read_text()
