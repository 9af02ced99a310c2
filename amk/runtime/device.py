"""The CUDA driver and its devices, asked through cuda-python; a machine without either is an answer, not a failure."""

from __future__ import annotations

from dataclasses import dataclass

from amk.target import ARCHS


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One GPU: its ordinal, name, ``sm_XY``, SMs (the most workers that are co-resident) and memory."""

    ordinal: int
    name: str
    arch: str
    workers: int
    memory_bytes: int

    @property
    def supported(self) -> bool:
        """amk has a code generator for it."""
        return self.arch in ARCHS


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """What the driver says: its CUDA version ``(major, minor)`` and devices, or why there is none."""

    version: tuple[int, int] | None
    devices: tuple[Device, ...]
    missing: str = ""


def probe() -> Driver:
    """Ask the driver; nothing is launched and no context is made."""
    try:
        from cuda.bindings import driver

        (status,) = driver.cuInit(0)
    except (ImportError, RuntimeError) as error:
        return Driver(version=None, devices=(), missing=f"no CUDA driver ({type(error).__name__})")
    if status != driver.CUresult.CUDA_SUCCESS:
        return Driver(version=None, devices=(), missing=f"cuInit: {status.name}")
    version = driver.cuDriverGetVersion()[1]
    count = driver.cuDeviceGetCount()[1]
    return Driver(
        version=(version // 1000, version % 1000 // 10),
        devices=tuple(_device(ordinal) for ordinal in range(count)),
    )


def _device(ordinal: int) -> Device:
    from cuda.bindings import driver

    device = driver.cuDeviceGet(ordinal)[1]
    attribute = driver.CUdevice_attribute

    def ask(what: object) -> int:
        return int(driver.cuDeviceGetAttribute(what, device)[1])

    major = ask(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
    minor = ask(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
    return Device(
        ordinal=ordinal,
        name=driver.cuDeviceGetName(128, device)[1].split(b"\0")[0].decode(),
        arch=f"sm_{major}{minor}",
        workers=ask(attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        memory_bytes=driver.cuDeviceTotalMem(device)[1],
    )
