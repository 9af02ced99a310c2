"""The environment, read once and typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from amk.errors import BadSettingError, UnwritablePathError
from amk.settings import settings, writable_folder


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AMK_HOME", "AMK_LOG", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def test_defaults(tmp_path: Path) -> None:
    found = settings()
    assert found.home == tmp_path / ".cache/amk"
    assert found.checkpoints == found.home / "checkpoints"
    assert found.cache == found.home / "cache"
    assert found.log_level == "warning"


def test_xdg_moves_the_default_and_amk_home_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert settings().home == tmp_path / "xdg/amk"
    monkeypatch.setenv("AMK_HOME", "~/mine")
    assert settings().home == tmp_path / "mine"


def test_the_environment_is_read_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMK_LOG", "DEBUG")
    assert settings().log_level == "debug"
    monkeypatch.setenv("AMK_LOG", "error")
    assert settings().log_level == "error"


@pytest.mark.parametrize(("variable", "value"), [("AMK_LOG", "loud"), ("AMK_HOME", " ")])
def test_a_value_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(BadSettingError, match=variable):
        settings()


def test_a_writable_folder_is_made(tmp_path: Path) -> None:
    assert writable_folder(tmp_path / "a/b").is_dir()


def test_a_file_in_the_way_is_an_unwritable_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnwritablePathError, match="AMK_HOME"):
        writable_folder(tmp_path / "file/below")
