from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An AMK_HOME of the test's own."""
    folder = tmp_path / "home"
    monkeypatch.setenv("AMK_HOME", str(folder))
    return folder


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub cannot be reached, whatever the machine can do."""
    import huggingface_hub

    def unreachable(*_: Any, **__: Any) -> None:
        raise ConnectionError("Name or service not known")

    for function in ("model_info", "snapshot_download", "hf_hub_download"):
        monkeypatch.setattr(huggingface_hub, function, unreachable)
