"""Where a kernel runs, as the code that launches it sees it: memory, copies, and one launch at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

ALIGN = 256
"""Bytes to which a chip aligns memory; a bulk copy asks for 16, a line of L2 has 128."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """Memory that host and kernel see at the same time: ``address`` is the kernel's, ``words`` the host's view."""

    address: int
    words: NDArray[np.uint32]


class Chip(Protocol):
    """A kernel, loaded where it runs.

    Addresses are the kernel's. Calls come one at a time, from any thread. What is handed out stays until ``close``,
    which also happens to a chip that nobody holds any more. What fails, a launch too, is raised as a ``DeviceError``.

    Attributes
    ----------
    clock_hz
        Ticks a second of the clock that the kernel's watchdog reads.
    gap
        Bytes to leave behind each buffer that shares memory with others, for ``guard``.
    """

    @property
    def clock_hz(self) -> float: ...

    @property
    def gap(self) -> int: ...

    def memory(self, size: int) -> int:
        """Address of ``size`` bytes, zeroed, aligned to ``ALIGN``."""

    def pinned(self, words: int) -> Pinned:
        """Memory of 32-bit words, zeroed, that the host sees while a launch runs."""

    def guard(self, address: int, size: int) -> None:
        """No kernel may touch these bytes; a chip that can tell says so when one does."""

    def upload(self, address: int, data: NDArray[Any]) -> None:
        """Copy an array to ``address``; the copy is over when this returns."""

    def download(self, address: int, out: NDArray[Any]) -> None:
        """Fill a contiguous array from ``address``; the copy is over when this returns."""

    def launch(self, params: bytes, *, rows: bool = False) -> None:
        """Start the kernel with these ``abi.PARAMS`` on all its workers. The launch before is over.

        ``rows``: the one for steps of several rows.
        """

    def is_over(self) -> bool:
        """Whether the last launch has ended."""

    def wait(self) -> None:
        """Return when the last launch has ended."""

    def close(self) -> None:
        """Free everything, behind a launch that still runs. A second call does nothing."""
