"""The CUDA driver API as this package uses it: every call checked, one context."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amk.runtime.errors import DriverError


def call(name: str, *args: Any) -> Any:
    """Call ``name`` of the driver API; its value, or a tuple of them.

    Raises
    ------
    DriverError
        It did not succeed; names the call and the driver's reason.
    """
    from cuda.bindings import driver

    status, *values = getattr(driver, name)(*args)
    if status != driver.CUresult.CUDA_SUCCESS:
        text = driver.cuGetErrorString(status)[1]
        raise DriverError(call=name, status=status.name, why=text.decode() if text else "unknown")
    return values[0] if len(values) == 1 else tuple(values)


class Context:
    """The primary context of a device, as PyTorch uses it too, current only inside ``active``."""

    def __init__(self, ordinal: int) -> None:
        call("cuInit", 0)
        self.device = call("cuDeviceGet", ordinal)
        self._handle = call("cuDevicePrimaryCtxRetain", self.device)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Make the context current for the calling thread, and the one before it afterwards."""
        call("cuCtxPushCurrent", self._handle)
        try:
            yield
        finally:
            call("cuCtxPopCurrent")

    def attribute(self, name: str) -> int:
        """A device attribute, ``MULTIPROCESSOR_COUNT``."""
        from cuda.bindings import driver

        which = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(call("cuDeviceGetAttribute", which, self.device))

    def close(self) -> None:
        """Give the context back."""
        call("cuDevicePrimaryCtxRelease", self.device)


def zero(address: int, size: int) -> None:
    """Zero device memory, and wait for it."""
    call("cuMemsetD8", address, 0, size)
    _settle()


def upload(address: int, data: NDArray[Any]) -> None:
    """Copy an array to device memory, and wait for it."""
    contiguous = np.ascontiguousarray(data)
    call("cuMemcpyHtoD", address, contiguous.ctypes.data, contiguous.nbytes)
    _settle()


def download(address: int, out: NDArray[Any]) -> None:
    """Fill a contiguous array from device memory, and wait for it."""
    call("cuMemcpyDtoH", out.ctypes.data, address, out.nbytes)


def is_idle(stream: object) -> bool:
    """Whether all work of a stream is over; what ended it badly is raised."""
    from cuda.bindings import driver

    (status,) = driver.cuStreamQuery(stream)
    if status == driver.CUresult.CUDA_ERROR_NOT_READY:
        return False
    call("cuStreamSynchronize", stream)
    return True


def _settle() -> None:
    """Wait for the default stream: a copy or memset may return before it is done, and kernels run on another stream."""
    call("cuStreamSynchronize", 0)
