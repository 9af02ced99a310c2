"""`amk doctor`: what it looks at, and what it says of a machine that lacks it."""

from __future__ import annotations

import json
import platform
from importlib import metadata
from pathlib import Path

import pytest

from amk import __version__
from amk.cli.app import main
from amk.cli.checks import all_checks, versions
from amk.cli.checks.folders import check_checkpoints, check_home
from amk.cli.checks.versions import check_compiler, check_requirements

PARTS = {"python", "amk", "torch", "transformers", "nvrtc", "driver", "c++", "AMK_HOME", "checkpoints"}


def test_every_part_is_reported_once(amk_home: Path) -> None:
    names = [check.name for check in all_checks()]
    assert set(names) >= PARTS
    assert len(set(names)) == len(names)


def test_a_check_that_is_not_ok_says_how_to_mend_it(amk_home: Path) -> None:
    for check in all_checks():
        assert check.detail
        assert bool(check.mend) == (check.status != "ok")


def test_json_is_one_document(amk_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["passed"] == (code == 0) == all(check["status"] != "fail" for check in report["checks"])
    python = next(check for check in report["checks"] if check["name"] == "python")
    assert python["detail"].startswith(platform.python_version())


def test_text_has_a_line_a_check(amk_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor"])
    lines = [line for line in capsys.readouterr().out.splitlines() if "mend:" not in line]
    assert len(lines) == len(all_checks())
    assert all(line.split()[0] in {"ok", "warn", "fail"} for line in lines)


def test_versions_are_held_against_the_declared_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {"amk": __version__, "torch": "2.10.0", "transformers": "5.24.0", "safetensors": "0.8.0"}

    def version(name: str) -> str:
        if name not in found:
            raise metadata.PackageNotFoundError(name)
        return found[name]

    monkeypatch.setattr(versions.metadata, "version", version)
    wanted = ["torch>=2.11,<2.15", "transformers>=5.17,<5.25", "safetensors>=0.8", "huggingface_hub>=1.33"]
    monkeypatch.setattr(versions.metadata, "requires", lambda _: [*wanted, "torch>=9; extra == 'test'"])
    checks = {check.name: check for check in check_requirements()}
    assert checks["torch"].status == "fail"
    assert "2.10.0 is outside" in checks["torch"].detail
    assert checks["transformers"].status == checks["safetensors"].status == checks["amk"].status == "ok"
    assert checks["huggingface_hub"].status == "fail"
    assert checks["huggingface_hub"].mend == "pip install 'huggingface_hub>=1.33'"


def test_stale_metadata_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions.metadata, "version", lambda _: "0.0.1")
    monkeypatch.setattr(versions.metadata, "requires", lambda _: [])
    check, *_ = check_requirements()
    assert (check.name, check.status) == ("amk", "fail")


def test_no_compiler_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert check_compiler().status == "warn"


def test_a_home_that_cannot_be_written_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AMK_HOME", str(tmp_path / "file/home"))
    assert check_home().status == "fail"
    assert main(["doctor"]) == 1


def test_looking_at_home_does_not_create_it(amk_home: Path) -> None:
    assert check_home().status == "ok"
    assert not amk_home.exists()


def test_prepared_checkpoints_are_listed(amk_home: Path) -> None:
    assert check_checkpoints().status == "warn"
    folder = amk_home / "checkpoints/SmolLM2-135M"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(bytes(2000))
    check = check_checkpoints()
    assert (check.status, check.detail) == ("ok", "SmolLM2-135M (2.0 kB)")
