"""Shared by all tests: no network, one thread a worker, a way to run the command line as a user does, golden files.

`pytest --update-golden` writes the golden files anew; look at the difference before committing it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

# Before anything imports torch or huggingface_hub, which read these once. Several workers that each start a thread a
# core are slower than one; and a test that needs the network is a test of the network.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
# A job in a shell's background ignores SIGINT, and so would all that it starts; some tests interrupt what they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest

ROOT = Path(__file__).resolve().parent.parent

Run = Callable[..., "subprocess.CompletedProcess[str]"]

UPDATE_GOLDEN = "--update-golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(UPDATE_GOLDEN, action="store_true", help="write the golden files anew")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether to write the golden files anew before they are compared."""
    return bool(request.config.getoption(UPDATE_GOLDEN))


@pytest.fixture
def amk_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty ``AMK_HOME`` of the test's own."""
    home = tmp_path / "amk-home"
    monkeypatch.setenv("AMK_HOME", str(home))
    return home


@pytest.fixture
def run_python() -> Run:
    """Run a program in a fresh interpreter: ``run_python("import amk")``; keywords go to the environment."""

    def run(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return _run([sys.executable, "-c", program], environment)

    return run


@pytest.fixture
def run_amk() -> Run:
    """Run ``amk`` with these words in a process of its own; keywords go to the environment."""

    def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return _run([sys.executable, "-m", "amk.cli.app", *words], environment)

    return run


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
