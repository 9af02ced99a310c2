"""NVRTC, the CUDA driver and the GPUs, asked through cuda-python; none of them is needed to compile or to validate."""

from __future__ import annotations

from typing import Final

from rich.filesize import decimal

from amk.cli.checks.check import Check
from amk.target import ARCHS

_UNNEEDED: Final = "compiling, validating and arch=cpu need none"


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
    mend = f"install NVIDIA's driver to run kernels; {_UNNEEDED}"
    try:
        from cuda.bindings import driver

        (status,) = driver.cuInit(0)
    except (ImportError, RuntimeError) as error:
        return [Check("driver", "warn", f"no CUDA driver ({type(error).__name__})", mend)]
    if status != driver.CUresult.CUDA_SUCCESS:
        return [Check("driver", "warn", f"cuInit: {status.name}", mend)]
    version = driver.cuDriverGetVersion()[1]
    count = driver.cuDeviceGetCount()[1]
    found = Check("driver", "ok", f"CUDA {version // 1000}.{version % 1000 // 10}, {count} device(s)")
    return [found, *(_check_device(index) for index in range(count))]


def _check_device(index: int) -> Check:
    from cuda.bindings import driver

    device = driver.cuDeviceGet(index)[1]
    attribute = driver.CUdevice_attribute

    def ask(what: object) -> int:
        return int(driver.cuDeviceGetAttribute(what, device)[1])

    name = driver.cuDeviceGetName(128, device)[1].split(b"\0")[0].decode()
    major = ask(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
    minor = ask(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
    workers = ask(attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
    memory = driver.cuDeviceTotalMem(device)[1]
    arch = f"sm_{major}{minor}"
    detail = f"{name}, {arch}, {workers} SMs, {decimal(memory)}"
    if arch in ARCHS:
        return Check(f"device {index}", "ok", detail)
    known = ", ".join(name for name in ARCHS if name != "cpu")
    return Check(f"device {index}", "warn", detail, f"amk has no code generator for {arch}; it has {known}")


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0]
