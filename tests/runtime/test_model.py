"""How a compiled model finds its device and hands its kernel over; the device itself is played."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import amk
from amk.errors import NoDeviceError
from amk.runtime import cuda, launch, model
from amk.runtime.device import Device, Driver
from amk.runtime.kernel import build_kernel
from tests.checkpoints import save_llama


def device(ordinal: int, arch: str) -> Device:
    return Device(ordinal=ordinal, name=f"GPU {ordinal}", arch=arch, workers=132, memory_bytes=1 << 37)


@pytest.fixture
def compiled(tmp_path: Path, amk_home: Path) -> amk.CompiledModel:
    return amk.compile(save_llama(tmp_path), arch="sm_90", progress=False)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What each backend was made with."""
    calls: list[dict[str, Any]] = []

    def chip(cubin: object, config: object, **options: Any) -> dict[str, Any]:
        return {"cubin": cubin, "config": config, **options}

    def backend(validated: object, config: object, chip: dict[str, Any], **options: Any) -> None:
        assert config is chip["config"]
        calls.append({"validated": validated, **chip, **options})

    monkeypatch.setattr(cuda, "CudaChip", chip)
    monkeypatch.setattr(launch, "KernelBackend", backend)
    return calls


def play(monkeypatch: pytest.MonkeyPatch, *devices: Device) -> None:
    monkeypatch.setattr(model, "probe", lambda: Driver(version=(13, 0), devices=devices))


def test_the_first_device_of_the_arch_gets_the_kernel_that_the_manifest_names(
    compiled: amk.CompiledModel, launched: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, device(0, "sm_80"), device(1, "sm_90"), device(2, "sm_90"))
    monkeypatch.setenv("AMK_WATCHDOG_S", "7")
    compiled.open_session()
    (call,) = launched
    assert call["device"].ordinal == 1
    assert call["workers"] == 132
    assert call["watchdog_s"] == 7.0
    assert call["cubin"].digest() == compiled.manifest.kernel.code
    assert call["config"].shared_bytes == compiled.manifest.kernel.shared_bytes
    assert call["load"]("model.norm.weight").shape == (64,)
    assert call["rope"](0, 5).shape == (5, 2, 8)


def test_a_device_can_be_asked_for(
    compiled: amk.CompiledModel, launched: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, device(0, "sm_90"), device(1, "sm_90"))
    compiled.device = 1
    compiled.open_session()
    assert launched[0]["device"].ordinal == 1


def test_no_device_of_the_arch_is_named(compiled: amk.CompiledModel, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, device(0, "sm_80"))
    with pytest.raises(NoDeviceError, match=r"this machine has GPU 0 \(sm_80\)"):
        compiled.open_session()
    play(monkeypatch)
    with pytest.raises(NoDeviceError, match="no device"):
        compiled.open_session()


def test_the_report_says_what_the_kernel_takes(compiled: amk.CompiledModel) -> None:
    facts = build_kernel(compiled._validated).facts
    assert compiled.report().kernel == facts == compiled.manifest.kernel
    assert f"{facts.registers} registers" in str(compiled.report())
