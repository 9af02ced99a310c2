"""`amk audit`: verdicts and exit codes, by the real gates on kernels of a few lines."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from amk.cli.app import main

REFERENCE = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.randn(6, 10)]
def get_init_inputs():
    return []
"""
RIGHT = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x.clamp(min=0)\n"
SWALLOWS_NAN = RIGHT.replace("x.clamp(min=0)", "torch.where(x > 0, x, 0.0)")
FAILS = RIGHT.replace("x.clamp(min=0)", "x.no_such_method()")
HANGS = RIGHT.replace("return x.clamp(min=0)", "\n        while True: pass")

GATES = ("--gates", "G00,G01,G07", "--jobs", "1", "--device", "cpu")


def record(name: str, candidate: str, reference: str = REFERENCE) -> dict[str, str]:
    return {"title": name, "ref_arch_src": reference, "custom_cuda_code": candidate}


def write(path: Path, *records: dict[str, str]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in records))
    return path


def audit(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, dict[str, Any]]:
    code = main(["audit", *map(str, words), *GATES, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, found


def test_kernels_get_verdicts_and_the_command_an_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "k.jsonl", record("right", RIGHT), record("wrong", SWALLOWS_NAN), record("fails", FAILS))
    code, found = audit(capsys, path, "--field", "name=title", "--out", tmp_path / "out")
    assert (code, found["verdict"], found["complete"]) == (1, "fail", True)
    statuses = {name: count for name, count in found["statistics"]["statuses"].items() if count}
    assert statuses == {"conforms": 1, "broken": 1, "failed": 1}
    kernels = {kernel["kernel"]: kernel for kernel in json.loads((tmp_path / "out/report.json").read_text())["kernels"]}
    assert list(kernels) == ["right", "wrong", "fails"]
    assert [finding["gate"] for finding in kernels["wrong"]["findings"]] == ["G00", "G01", "G07"]
    assert "no_such_method" in kernels["fails"]["why"]
    loose = found["statistics"]["contingency"][0]
    assert (loose["both_accept"], loose["standard_only"], loose["left_out"]) == (1, 1, 1)
    code, again = audit(capsys, path, "--field", "name=title", "--out", tmp_path / "out")
    assert (code, again["resumed"], again["statistics"]) == (1, 3, found["statistics"])


def test_a_page_has_a_command_that_finds_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "k.jsonl", record("wrong", SWALLOWS_NAN))
    assert audit(capsys, tmp_path / "k.jsonl", "--out", tmp_path / "out")[0] == 1
    (name,) = (path.stem for path in (tmp_path / "out/kernels").glob("*.md"))
    lines = (tmp_path / f"out/kernels/{name}.md").read_text().splitlines()
    command = next(line for line in lines if line.startswith("amk audit ") and "G01" in line)
    monkeypatch.chdir(tmp_path / "out/kernels")
    assert main(command.split()[1:]) == 1
    assert "broken" in capsys.readouterr().out
    findings = [
        next(finding for finding in json.loads(path.read_text())["kernels"][0]["findings"] if finding["gate"] == "G01")
        for path in (tmp_path / "out/report.json", Path("again-G01/report.json"))
    ]
    for finding in findings:
        finding["failing"].pop("data")
    assert findings[0] == findings[1]


def test_all_conform_is_exit_0_and_none_judged_is_5(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "right.jsonl", record("right", RIGHT))
    assert main(["audit", str(tmp_path / "right.jsonl"), *GATES, "--out", str(tmp_path / "right")]) == 0
    assert "conforms" in capsys.readouterr().out
    bad = record("bad", RIGHT, REFERENCE.replace("torch.randn(6, 10)", "1 / 0"))
    code, found = audit(capsys, write(tmp_path / "bad.jsonl", bad), "--out", tmp_path / "bad")
    assert (code, found["verdict"]) == (5, "unknown")


def test_an_interrupt_ends_with_what_is_done(tmp_path: Path) -> None:
    write(tmp_path / "k.jsonl", record("right", RIGHT), record("hangs", HANGS))
    words = ["audit", tmp_path / "k.jsonl", *GATES, "--timeout-s", "200", "--out", tmp_path / "out"]
    process = subprocess.Popen(
        [sys.executable, "-m", "amk.cli.app", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    journal = tmp_path / "out/journal.jsonl"
    while not journal.exists() or journal.read_bytes().count(b"\n") < 2:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted: the same command goes on from here" in out
    assert "Traceback" not in err
    document = json.loads((tmp_path / "out/report.json").read_text())
    assert (document["complete"], len(document["kernels"])) == (False, 1)


WRONG = {
    "no path": ([], "AMK-U104"),
    "no such path": (["none"], "AMK-U110"),
    "no kernels": (["empty"], "AMK-P742"),
    "no such gate": (["k.jsonl", "--gates", "G13"], "AMK-U104"),
    "no such dtype": (["k.jsonl", "--dtype", "float17"], "AMK-U104"),
    "an integer dtype": (["k.jsonl", "--dtype", "int32"], "AMK-U104"),
    "no such device": (["k.jsonl", "--device", "tpu"], "AMK-U104"),
    "no such engine": (["k.jsonl", "--engine", "slurm"], "AMK-U104"),
    "no such role": (["k.jsonl", "--field", "kernel=x"], "AMK-P740"),
    "no such field": (["k.jsonl", "--field", "candidate=x"], "AMK-P741"),
    "no such reference": (["k.jsonl", "--field", "name=title", "--reference", "none"], "AMK-U104"),
    "no folder": (["k.jsonl", "--out", "k.jsonl/out"], "AMK-U109"),
    "among the kernels": (["folder", "--out", "folder"], "AMK-U104"),
}


@pytest.mark.parametrize(("words", "code"), WRONG.values(), ids=WRONG)
def test_a_wrong_command_is_one_error(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    code: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("folder").mkdir()
    Path("folder/a.py").write_text(REFERENCE + RIGHT)
    write(Path("k.jsonl"), record("right", RIGHT))
    out = [] if "--out" in words else ["--out", "out"]
    assert main(["audit", *words, *out, "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == code
    assert error["mend"]


def test_other_options_need_another_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "k.jsonl", {"title": "x", "ref_arch_src": " ", "custom_cuda_code": " "})
    assert main(["audit", str(tmp_path / "k.jsonl"), "--device", "cpu", "--out", str(tmp_path / "out")]) == 5
    capsys.readouterr()
    code, found = audit(capsys, tmp_path / "k.jsonl", "--seed", "3", "--out", tmp_path / "out")
    assert (code, found["error"]["code"]) == (2, "AMK-P743")
    assert "seed 0, now 3" in found["error"]["message"]
    code, found = audit(capsys, tmp_path / "k.jsonl", "--seed", "3", "--out", tmp_path / "out", "--fresh")
    assert (code, found["resumed"]) == (5, 0)


def test_the_gpu_is_asked_for_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is one")
    path = write(tmp_path / "k.jsonl", record("right", RIGHT))
    assert main(["audit", str(path), "--device", "cuda", "--out", str(tmp_path / "out"), "--json"]) == 2
    assert "--device cpu" in json.loads(capsys.readouterr().out)["error"]["mend"]


@pytest.mark.parametrize(("needed", "code"), [(3.0, 0), (9.0, 1)])
def test_a_calibration_is_written_and_judged_by_what_is_granted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, needed: float, code: int
) -> None:
    from amk.contracts import calibrate

    rows = [
        calibrate.Row(kernel="gelu", dtype="float32", scale=1, gate="G07", kappa=1.5),
        calibrate.Row(kernel="softmax", dtype="bfloat16", scale=4, gate="G07", kappa=needed),
    ]
    asked: list[object] = []

    def measured(device: str, jobs: int | None, note: object) -> calibrate.Calibration:
        asked.extend([device, jobs])
        return calibrate.summarise(rows, device=device)

    monkeypatch.setattr(calibrate, "calibrate", measured)
    words = ["audit", "--calibrate", "--device", "cpu", "--jobs", "3", "--out", str(tmp_path)]
    assert main(words) == code
    shown = capsys.readouterr().out
    assert asked == ["cpu", 3]
    assert ("G07 accuses softmax, bfloat16, size x4: it needs 9" in shown) == bool(code)
    assert "8, granted" in shown
    assert json.loads((tmp_path / "calibration.json").read_text())["silent"] == {"G07": needed}
    assert main([*words, "--json"]) == code
    assert json.loads(capsys.readouterr().out)["granted"] == 8.0
