"""`amk audit` on a device: the same verdicts as on the CPU, and the gates that only a device can answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from amk.cli.app import main
from tests.cli.test_audit import RIGHT, SWALLOWS_NAN, record, write

pytestmark = pytest.mark.gpu


def test_kernels_are_judged_on_the_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "k.jsonl", record("right", RIGHT), record("wrong", SWALLOWS_NAN))
    words = ["audit", str(path), "--field", "name=title", "--device", "cuda", "--out", str(tmp_path / "out"), "--json"]
    assert main(words) == 1
    statuses = json.loads(capsys.readouterr().out)["statistics"]["statuses"]
    assert (statuses["conforms"], statuses["broken"]) == (1, 1)
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert {"gpu", "cuda"} <= set(report["machine"])
    right = {finding["gate"]: finding for finding in report["kernels"][0]["findings"]}
    assert right["G10"]["verdict"] == "pass"
    assert "no device" not in right["G10"]["why"]
