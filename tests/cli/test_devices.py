"""What `amk doctor` says of NVRTC, the driver and GPUs; a driver is played where there is none."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from amk.cli.checks.devices import check_devices, check_nvrtc

OK = SimpleNamespace(name="CUDA_SUCCESS")
BROKEN = SimpleNamespace(name="CUDA_ERROR_NO_DEVICE")


def played_driver(*, status: object = OK, major: int = 9, minor: int = 0) -> SimpleNamespace:
    attributes = {
        "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": major,
        "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR": minor,
        "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT": 132,
    }
    return SimpleNamespace(
        CUresult=SimpleNamespace(CUDA_SUCCESS=OK),
        CUdevice_attribute=SimpleNamespace(**{name: name for name in attributes}),
        cuInit=lambda _: (status,),
        cuDriverGetVersion=lambda: (OK, 13020),
        cuDeviceGetCount=lambda: (OK, 1),
        cuDeviceGet=lambda index: (OK, index),
        cuDeviceGetName=lambda size, _: (OK, b"Some GPU".ljust(size, b"\0")),
        cuDeviceGetAttribute=lambda what, _: (OK, attributes[what]),
        cuDeviceTotalMem=lambda _: (OK, 80_000_000_000),
    )


def test_nvrtc_is_found_where_its_package_is() -> None:
    check = check_nvrtc()
    assert check.status == "ok"
    assert check.detail.startswith("13.")


def test_nvrtc_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> None:
        raise RuntimeError("nowhere\nat all")

    monkeypatch.setattr("cuda.pathfinder.load_nvidia_dynamic_lib", refuse)
    check = check_nvrtc()
    assert (check.status, check.detail) == ("warn", "not found: nowhere")


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise RuntimeError("no libcuda")

    monkeypatch.setattr("cuda.bindings.driver", SimpleNamespace(cuInit=refuse))
    (check,) = check_devices()
    assert check.status == "warn"
    assert "arch=cpu" in check.mend


def test_a_driver_without_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuda.bindings.driver", played_driver(status=BROKEN))
    (check,) = check_devices()
    assert (check.status, check.detail) == ("warn", "cuInit: CUDA_ERROR_NO_DEVICE")


def test_a_device_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuda.bindings.driver", played_driver())
    found, device = check_devices()
    assert found.detail == "CUDA 13.2, 1 device(s)"
    assert (device.name, device.status) == ("device 0", "ok")
    assert device.detail == "Some GPU, sm_90, 132 SMs, 80.0 GB"


def test_a_device_without_a_code_generator_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuda.bindings.driver", played_driver(major=7, minor=5))
    _, device = check_devices()
    assert device.status == "warn"
    assert "sm_75" in device.mend


@pytest.mark.gpu
def test_the_real_device() -> None:
    _, device, *_ = check_devices()
    assert device.name == "device 0"
    assert ", sm_" in device.detail
