"""Processes of kernels that end with their test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from amk.contracts.sources import Source
from amk.contracts.subject import Process
from tests.contracts.kernels import text


@pytest.fixture
def running() -> Iterator[list[Process]]:
    processes: list[Process] = []
    yield processes
    for process in processes:
        process.close()


@pytest.fixture
def start(running: list[Process]):
    def begin(source: Source | str, **arguments: object) -> Process:
        source = text(source) if isinstance(source, str) else source
        running.append(Process(source, **arguments))  # type: ignore[arg-type]
        return running[-1]

    return begin
