"""The machine's own limits, on this processor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from amk.codegen.cache import cubin_for
from amk.codegen.errors import NotGeneratableError
from amk.codegen.limits import limits_source
from amk.errors import NoDeviceError
from amk.measure import limits as room
from amk.measure.limits import limits
from amk.runtime.device import Driver
from amk.runtime.errors import HopTimeoutError
from amk.target import TARGETS, resolve_target

HOST = TARGETS["host"]
MEMORY = 1 << 20


@pytest.fixture(autouse=True)
def _quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(room, "REPEATS", 1)
    monkeypatch.setattr(room, "PASSES", 2)
    monkeypatch.setattr(room, "HOPS_MAX", room.HOPS_MIN)


def test_what_is_measured() -> None:
    found = limits(HOST, memory_bytes=MEMORY)
    assert (found.target, found.workers) == (HOST.name, HOST.workers)
    assert found.memory_bytes == MEMORY
    assert found.read_bytes_per_s > 0
    assert found.hop_us > 0
    assert found.hop_streaming_us > 0
    assert found.streaming_bytes_per_s > 0


def test_every_block_reads_what_it_is_asked_to_and_hops_with_all_others() -> None:
    chip = room._open(HOST, None)
    try:
        runs = room._Runs(chip, HOST, MEMORY)
        counts, counter = np.empty(HOST.workers, dtype=np.uint32), np.empty(1, dtype=np.uint32)
        runs.run(pieces=3 * runs.part)
        chip.download(runs.read, counts)
        assert counts.tolist() == [3 * runs.part] * HOST.workers
        runs.run(hops=7)
        chip.download(runs.counters, counter)
        assert counter[0] == 7 * HOST.workers
        chip.download(runs.read, counts)
        assert counts.tolist() == [0] * HOST.workers
    finally:
        chip.close()


def test_a_hop_that_takes_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    chip = room._open(HOST, None)
    try:
        runs = room._Runs(chip, HOST, MEMORY)
        monkeypatch.setenv("AMK_WATCHDOG_S", "0.000001")
        with pytest.raises(HopTimeoutError, match=r"took more than 1e-06 s"):
            runs.run(hops=100)
    finally:
        chip.close()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_the_kernel_is_built_for_every_arch(arch: str) -> None:
    assert cubin_for(limits_source(resolve_target(arch=arch, target=None))).resources.spilled_bytes == 0


def test_what_cannot_be_measured_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotGeneratableError, match="arch cpu"):
        limits(TARGETS["cpu"])
    monkeypatch.setattr("amk.runtime.device.probe", lambda: Driver(version=None, devices=(), missing="no driver"))
    with pytest.raises(NoDeviceError, match="measure its limits"):
        limits(TARGETS["h200"])
