"""A chip that is played: its memory is this process's, its kernel a function."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from amk.codegen import abi
from amk.runtime.chip import ALIGN, Pinned
from amk.runtime.launch import KernelBackend

Kernel = Callable[[dict[str, Any]], None]


class PlayedChip:
    """``kernel(params)`` runs when the host waits for a launch or asks for its end, and sees the parameters by name."""

    clock_hz = 1e6

    def __init__(self, *, gap: int = 0) -> None:
        self.gap = gap
        self.kernel: Kernel = lambda params: None
        self.launched: list[dict[str, Any]] = []
        self.pending: dict[str, Any] | None = None
        self.guarded: list[tuple[int, int]] = []
        self.held: list[Any] = []
        self.closed = 0

    def memory(self, size: int) -> int:
        self.held.append(allocated(size))
        return address_of(self.held[-1])

    def pinned(self, count: int) -> Pinned:
        address = self.memory(4 * count)
        return Pinned(address=address, words=words(address, count))

    def guard(self, address: int, size: int) -> None:
        self.guarded.append((address, size))

    def upload(self, address: int, data: NDArray[Any]) -> None:
        ctypes.memmove(address, np.ascontiguousarray(data).ctypes.data, data.nbytes)

    def download(self, address: int, out: NDArray[Any]) -> None:
        assert out.flags.c_contiguous
        ctypes.memmove(out.ctypes.data, address, out.nbytes)

    def launch(self, params: bytes, *, rows: bool = False) -> None:
        assert self.pending is None
        assert rows == (abi.PARAMS.unpack(params)["tokens"] > 1)
        self.pending = abi.PARAMS.unpack(params)
        self.launched.append(self.pending)

    def is_over(self) -> bool:
        self.wait()
        return True

    def wait(self) -> None:
        if self.pending is not None:
            params, self.pending = self.pending, None
            self.kernel(params)

    def close(self) -> None:
        self.closed += 1


def allocated(size: int) -> Any:
    """Zeroed memory that holds an aligned block of ``size`` bytes."""
    return ctypes.create_string_buffer(size + ALIGN)


def address_of(data: Any) -> int:
    """Of the aligned block."""
    return -(-ctypes.addressof(data) // ALIGN) * ALIGN


def words(address: int, count: int) -> NDArray[np.uint32]:
    """Memory of this process as 32-bit words."""
    return np.ctypeslib.as_array((ctypes.c_uint32 * count).from_address(address))


def counting(backend: KernelBackend, *, stop_after: int = 10**9) -> Kernel:
    """A kernel that chooses position as token and ends early after ``stop_after`` steps or when cancelled."""

    def kernel(params: dict[str, Any]) -> None:
        status = words(params["status"], 2)
        steps = 1 if status[1] else min(params["steps"], stop_after)
        for step in range(1, steps + 1):
            position = params["pos"] + step * params["tokens"]
            backend.placed.host["token"].words[position] = position
        status[0] = steps

    return kernel


def inputs(backend: KernelBackend) -> dict[str, NDArray[np.uint32]]:
    """What ``begin`` and ``enter`` set, as words."""
    sizes = {"prompt": 3, "prompt_length": 1, "eos": 16, "hidden": 0}
    sizes["hidden"] = 2 * backend.schedule.buffer["hidden"].shape[1] * 2  # of two rows, values and epochs
    return {name: words(backend.placed.address[name], size) for name, size in sizes.items()}
