"""NVRTC, the CUDA driver and the GPUs, asked through cuda-python; none of them is needed to compile or to validate."""

from __future__ import annotations

from typing import Final

from rich.filesize import decimal

from amk.cli.checks.check import Check
from amk.runtime.device import Device, probe
from amk.target import ARCHS

_UNNEEDED: Final = "compiling, validating, arch=cpu and arch=host need none"


def check_nvrtc() -> Check:
    """The compiler library that turns CUDA source into a cubin."""
    try:
        from cuda.bindings import nvrtc
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = load_nvidia_dynamic_lib("nvrtc").abs_path
        status, major, minor = nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        return Check("nvrtc", "warn", f"not found: {_first_line(error)}", "pip install 'nvidia-cuda-nvrtc>=13,<14'")
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        return Check("nvrtc", "warn", f"{path}: {status.name}", "pip install --force-reinstall nvidia-cuda-nvrtc")
    return Check("nvrtc", "ok", f"{major}.{minor} ({path})")


def check_devices() -> list[Check]:
    """The driver, then one check a GPU."""
    driver = probe()
    if driver.version is None:
        return [Check("driver", "warn", driver.missing, f"install NVIDIA's driver to run kernels; {_UNNEEDED}")]
    major, minor = driver.version
    found = Check("driver", "ok", f"CUDA {major}.{minor}, {len(driver.devices)} device(s)")
    return [found, *(_check_device(device) for device in driver.devices)]


def _check_device(device: Device) -> Check:
    detail = f"{device.name}, {device.arch}, {device.workers} SMs, {decimal(device.memory_bytes)}"
    if device.supported:
        return Check(f"device {device.ordinal}", "ok", detail)
    known = ", ".join(name for name in ARCHS if name.startswith("sm_"))
    mend = f"amk has no code generator for {device.arch}; it has {known}"
    return Check(f"device {device.ordinal}", "warn", detail, mend)


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
