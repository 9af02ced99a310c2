"""The kernel on a GPU: a cubin in the device's primary context, cooperative launches on a stream of its own."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from amk.codegen.emit import kernel_names
from amk.runtime.chip import Pinned
from amk.runtime.device import Device, probe
from amk.runtime.driver import Context, call, download, is_idle, upload, zero
from amk.runtime.errors import GridTooLargeError, OldDriverError, StreamCaptureError, WrongDeviceError

if TYPE_CHECKING:
    from amk.codegen.config import KernelConfig
    from amk.codegen.nvrtc import Cubin


class CudaChip:
    """A kernel on one GPU; see ``chip.Chip``. The device's context is current only while a method runs.

    While the calling thread captures its CUDA stream into a graph, every method but ``close`` refuses to work: launches
    on another stream would not be part of the graph, and copies and waits would invalidate it.

    Parameters
    ----------
    cubin, config
        The kernel, and the constants it was built with.
    device
        Where to run.
    workers
        Blocks of a launch, all of which run at once.

    Raises
    ------
    WrongDeviceError, OldDriverError, GridTooLargeError
        The device or its driver cannot run the kernel; nothing is kept.
    StreamCaptureError, DriverError
    """

    gap = 0

    def __init__(self, cubin: Cubin, config: KernelConfig, *, device: Device, workers: int) -> None:
        _refuse_capture()
        _check_runs(cubin, device)
        self.device = device
        self._config = config
        self._workers = workers
        self._context = Context(device.ordinal)
        self._owned = ExitStack()
        self._free = weakref.finalize(self, _free, self._context, self._owned)
        self._free.atexit = False  # the driver frees all that a process held
        try:
            with self._active():
                self.clock_hz = 1e3 * self._context.attribute("CLOCK_RATE")
                self._module = self._load(cubin)
                self._functions = {rows: self._function(name) for rows, name in kernel_names(config).items()}
                self._stream = call("cuStreamCreate", 1)  # CU_STREAM_NON_BLOCKING
                self._owned.callback(call, "cuStreamDestroy", self._stream)
        except BaseException:
            self._free()
            raise

    def _load(self, cubin: Cubin) -> object:
        module = call("cuModuleLoadData", cubin.code)
        self._owned.callback(call, "cuModuleUnload", module)
        return module

    def _function(self, name: str) -> object:
        """A kernel, once it is known that all its blocks run at once."""
        from cuda.bindings import driver

        function = call("cuModuleGetFunction", self._module, name.encode())
        which = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        threads, shared = self._config.threads, self._config.shared_bytes
        call("cuFuncSetAttribute", function, which, shared)
        each = call("cuOccupancyMaxActiveBlocksPerMultiprocessor", function, threads, shared)
        most = each * self._context.attribute("MULTIPROCESSOR_COUNT")
        if self._workers > most:
            raise GridTooLargeError(workers=self._workers, name=self.device.name, most=most)
        return function

    @contextmanager
    def _active(self) -> Iterator[None]:
        _refuse_capture()
        with self._context.active():
            yield

    def memory(self, size: int) -> int:
        with self._active():
            size = max(size, 1)
            address = int(call("cuMemAlloc", size))
            self._owned.callback(call, "cuMemFree", address)
            zero(address, size)
        return address

    def pinned(self, words: int) -> Pinned:
        from cuda.bindings import driver

        flags = driver.CU_MEMHOSTALLOC_PORTABLE | driver.CU_MEMHOSTALLOC_DEVICEMAP
        with self._active():
            pointer = int(call("cuMemHostAlloc", 4 * words, flags))
            self._owned.callback(call, "cuMemFreeHost", pointer)
            address = int(call("cuMemHostGetDevicePointer", pointer, 0))
        view = np.ctypeslib.as_array((ctypes.c_uint32 * words).from_address(pointer))
        view[:] = 0
        return Pinned(address=address, words=view)

    def guard(self, address: int, size: int) -> None:
        """Nothing: a GPU does not tell."""

    def upload(self, address: int, data: NDArray[Any]) -> None:
        with self._active():
            upload(address, data)

    def download(self, address: int, out: NDArray[Any]) -> None:
        with self._active():
            download(address, out)

    def launch(self, params: bytes, *, rows: bool = False) -> None:
        argument = ctypes.create_string_buffer(params, len(params))
        pointers = np.array([ctypes.addressof(argument)], dtype=np.uint64)
        with self._active():
            call(
                "cuLaunchCooperativeKernel",
                self._functions[rows],
                *(self._workers, 1, 1, self._config.threads, 1, 1),
                self._config.shared_bytes,
                self._stream,
                pointers.ctypes.data,
            )

    def is_over(self) -> bool:
        with self._active():
            return is_idle(self._stream)

    def wait(self) -> None:
        with self._active():
            call("cuStreamSynchronize", self._stream)

    def close(self) -> None:
        self._free()


def _refuse_capture() -> None:
    """Raise if PyTorch captures this thread's stream, before any call of the driver that would invalidate the graph."""
    # Nothing is captured by a PyTorch that has not initialised CUDA, and asking it would do so.
    initialized: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    if initialized and torch.cuda.is_current_stream_capturing():
        raise StreamCaptureError


def _check_runs(cubin: Cubin, device: Device) -> None:
    """The cubin is of the device's architecture, and the driver not older than what made it."""
    if cubin.arch != device.arch:
        raise WrongDeviceError(wanted=cubin.arch, ordinal=device.ordinal, found=device.arch, arch=device.arch)
    major = cubin.nvrtc.split(".")[0]
    speaks = probe().version or (0, 0)
    if speaks[0] < int(major):
        raise OldDriverError(found=".".join(map(str, speaks)), built=cubin.nvrtc, need=f"{major}.0")


def _free(context: Context, owned: ExitStack) -> None:
    """Free what a chip held; freeing waits for a launch that still runs."""
    try:
        with context.active():
            owned.close()
    finally:
        context.close()
