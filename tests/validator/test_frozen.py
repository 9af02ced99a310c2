"""The validator is what ``FROZEN`` says it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from amk.validator import frozen
from amk.validator.digest import sources, validator_digest


def test_nothing_changed_since_it_was_frozen() -> None:
    changed = frozen.changed()
    assert not changed, (
        f"sources that decide verdicts are not as amk/validator/FROZEN says: {', '.join(changed)}. "
        f"If the change is meant, freeze it: {frozen.REFRESH}"
    )


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A FROZEN that holds the sources as they are."""
    path = tmp_path / "FROZEN"
    monkeypatch.setattr("amk.validator.frozen.FROZEN", path)
    path.write_text(frozen.text())
    return path


@pytest.mark.parametrize("name", ["validator/rules/race.py", "ir/tasks.py", "validator/rules/new.py"])
def test_every_source_counts(
    name: str, file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert frozen.main([]) == 0
    touched = {**sources(), name: "0" * 64}
    monkeypatch.setattr("amk.validator.frozen.sources", lambda: touched)
    assert frozen.changed() == [name]
    assert frozen.main([]) == 1
    shown = capsys.readouterr().out
    assert name in shown
    assert frozen.REFRESH in shown


def test_write_freezes(file: Path) -> None:
    file.unlink()
    assert frozen.main([]) == 1
    assert frozen.main(["--write"]) == 0
    assert frozen.main(["--wrong"]) == 2
    assert f"{validator_digest()}  validator" in file.read_text().splitlines()
