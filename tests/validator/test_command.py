"""``amk validate``: exit codes and what is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from amk.cli.app import main
from amk.ir.schedule import Schedule
from amk.validator import Certificate, check_certificate
from tests.builders import llama_graph, lower
from tests.validator.changes import with_task


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    return lower(llama_graph(), workers=3, tagged=False)


@pytest.fixture
def good(schedule: Schedule, tmp_path: Path) -> Path:
    path = tmp_path / "good.json"
    path.write_bytes(schedule.to_json())
    return path


@pytest.fixture
def bad(schedule: Schedule, tmp_path: Path) -> Path:
    path = tmp_path / "bad.json"
    task = next(task for task in schedule.tasks if task.id == "L0.attention#0")
    path.write_bytes(with_task(schedule, replace(task, waits=())).to_json())
    return path


def test_proved(good: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(good)]) == 0
    assert "PROVED" in capsys.readouterr().out


def test_refuted(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(bad)]) == 1
    shown = capsys.readouterr().out
    assert "AMK-V301 race" in shown
    assert "L0.attention#0 (worker" in shown
    assert "mend:" in shown


def test_json(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(bad), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["outcome"] == "refuted"
    assert document["certificate"] is None
    assert {"AMK-V301"} <= {finding["code"] for finding in document["findings"]}


def test_certificate(good: Path, schedule: Schedule, tmp_path: Path) -> None:
    out = tmp_path / "certificate.json"
    assert main(["validate", str(good), "--certificate", str(out)]) == 0
    check_certificate(Certificate.from_json(out.read_bytes()), schedule)


def test_no_certificate_of_a_refuted_schedule(bad: Path, tmp_path: Path) -> None:
    out = tmp_path / "certificate.json"
    assert main(["validate", str(bad), "--certificate", str(out)]) == 1
    assert not out.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"version": 7}'])
def test_unreadable(text: str, tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text(text)
    assert main(["validate", str(path)]) == 2


def test_nothing_to_check(tmp_path: Path) -> None:
    assert main(["validate"]) == 2
    assert main(["validate", str(tmp_path / "none.json")]) == 2


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--explain", "AMK-V301"]) == 0
    assert "x -> y or y -> x" in capsys.readouterr().out
    assert main(["validate", "--explain", "AMK-V000"]) == 2
