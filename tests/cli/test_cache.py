"""`amk cache`: sizes, and clearing that never reaches further than asked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from amk.cli.app import main


@pytest.fixture
def kept(amk_home: Path) -> Path:
    """A home with 300 bytes of cache and a checkpoint of 1000 bytes."""
    for name, size in {"cache/graphs/a": 100, "cache/graphs/b": 150, "cache/cubins/c": 50}.items():
        path = amk_home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))
    (amk_home / "checkpoints/demo").mkdir(parents=True)
    (amk_home / "checkpoints/demo/model.safetensors").write_bytes(bytes(1000))
    return amk_home


def report(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert main([*words, "--json"]) == 0
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return document


def test_info_of_an_empty_home(amk_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(capsys, "cache", "info") == {"home": str(amk_home), "cache": [], "checkpoints": []}
    assert main(["cache", "info"]) == 0
    assert not amk_home.exists()


def test_info_sums_by_kind(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(capsys, "cache", "info") == {
        "home": str(kept),
        "cache": [
            {"kind": "cubins", "path": str(kept / "cache/cubins"), "bytes": 50},
            {"kind": "graphs", "path": str(kept / "cache/graphs"), "bytes": 250},
        ],
        "checkpoints": [{"kind": "demo", "path": str(kept / "checkpoints/demo"), "bytes": 1000}],
    }
    main(["cache", "info"])
    assert "1.3 kB" in capsys.readouterr().out


def test_clear_leaves_checkpoints(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(capsys, "cache", "clear", "--yes")["bytes"] == 300
    assert list((kept / "cache").iterdir()) == []
    assert (kept / "checkpoints/demo/model.safetensors").exists()


def test_clear_takes_checkpoints_when_asked(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(capsys, "cache", "clear", "--yes", "--checkpoints")["bytes"] == 1300
    assert list((kept / "checkpoints").iterdir()) == []


def test_clear_removes_a_link_and_not_what_it_points_to(kept: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").write_text("kept")
    (kept / "cache/link").symlink_to(tmp_path / "precious")
    assert main(["cache", "clear", "--yes"]) == 0
    assert (tmp_path / "precious/file").read_text() == "kept"
    assert not (kept / "cache/link").is_symlink()


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_clear_without_a_terminal_wants_yes(kept: Path, extra: list[str]) -> None:
    assert main(["cache", "clear", *extra]) == 2
    assert (kept / "cache/graphs/a").exists()


@pytest.mark.parametrize(("answer", "left"), [(True, False), (False, True)])
def test_clear_asks(kept: Path, monkeypatch: pytest.MonkeyPatch, answer: bool, left: bool) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda _: answer)
    assert main(["cache", "clear"]) == 0
    assert (kept / "cache/graphs/a").exists() == left


def test_what_cannot_be_removed_is_an_error(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("shutil.rmtree", refuse)
    assert main(["cache", "clear", "--yes"]) == 2
