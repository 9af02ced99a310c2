"""What the machine itself can do, measured in every benchmark and printed beside it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

from amk.codegen import abi
from amk.codegen.limits import limits_source
from amk.errors import NoDeviceError
from amk.measure.result import Limits
from amk.runtime.errors import HopTimeoutError
from amk.settings import settings

if TYPE_CHECKING:
    from amk.runtime.chip import Chip
    from amk.target import Target

HOPS_MIN: Final = 16
HOPS_MAX: Final = 2000
LAUNCH_S: Final = 0.01
"""Hops are as many as take so long, within these bounds: launching then costs little of it."""
PASSES: Final = 8
"""Times that the memory is read for one figure."""
REPEATS: Final = 5


def limits(target: Target, *, device: int | None = None, memory_bytes: int | None = None) -> Limits:
    """Measure ``target`` on this machine.

    Parameters
    ----------
    device
        CUDA ordinal; None for the first of the target's arch.
    memory_bytes
        None for four times the target's cache.

    Raises
    ------
    NotGeneratableError, BuildError, NoDeviceError, DeviceError
    """
    chip = _open(target, device)
    try:
        return _Runs(chip, target, memory_bytes or 4 * target.l2_bytes).measured()
    finally:
        chip.close()


def _open(target: Target, device: int | None) -> Chip:
    source = limits_source(target)
    if target.arch == "host":
        from amk.codegen.cache import program_for
        from amk.runtime.host import HostChip

        return HostChip(program_for(source), source.config, workers=target.workers)
    from amk.codegen.cache import cubin_for
    from amk.runtime.cuda import CudaChip
    from amk.runtime.device import probe

    present = [found for found in probe().devices if found.arch == target.arch and device in (None, found.ordinal)]
    if not present:
        raise NoDeviceError(arch=target.arch, action="measure its limits", why="this machine has none")
    return CudaChip(cubin_for(source), source.config, device=present[0], workers=target.workers)


class _Runs:
    def __init__(self, chip: Chip, target: Target, memory_bytes: int) -> None:
        self.chip = chip
        self.target = target
        self.part = -(-memory_bytes // (target.workers * target.stage_bytes))  # pieces of a block
        self.memory_bytes = self.part * target.workers * target.stage_bytes
        self.memory = chip.memory(self.memory_bytes)
        self.counters = chip.memory(128)
        self.abort = chip.memory(4)
        self.read = chip.memory(4 * target.workers)

    def measured(self) -> Limits:
        target = self.target
        pieces = PASSES * self.part
        each = pieces * target.workers * target.stage_bytes
        read_s = _median(lambda: self.run(pieces=pieces))
        self.run(hops=HOPS_MIN)  # the first one pays for what is not yet there
        hops = min(max(int(LAUNCH_S * HOPS_MIN / self.run(hops=HOPS_MIN)), HOPS_MIN), HOPS_MAX)
        hop_s = _median(lambda: self.run(hops=hops))
        both = sorted(self.both(hops) for _ in range(REPEATS))[REPEATS // 2]
        return Limits(
            target=target.name,
            workers=target.workers,
            memory_bytes=self.memory_bytes,
            read_bytes_per_s=each / read_s,
            hop_us=hop_s / hops * 1e6,
            hop_streaming_us=both[0] / hops * 1e6,
            streaming_bytes_per_s=both[1] / both[0],
        )

    def both(self, hops: int) -> tuple[float, float]:
        """(seconds of the hops, bytes read meanwhile)."""
        seconds = self.run(pieces=1, hops=hops)
        counts = np.empty(self.target.workers, dtype=np.uint32)
        self.chip.download(self.read, counts)
        return seconds, float(counts.sum()) * self.target.stage_bytes

    def run(self, *, pieces: int = 0, hops: int = 0) -> float:
        """Seconds of one launch."""
        self.chip.upload(self.counters, np.zeros(32, dtype=np.uint32))
        params = abi.PARAMS.pack(
            tasks=self.memory,
            queue_begin=0,
            counters=self.counters,
            abort=self.abort,
            status=0,
            reports=0,
            watchdog_clocks=int(settings().watchdog_s * self.chip.clock_hz),
            clocks=0,
            times=self.read,
            tasks_total=self.part,
            steps=hops,
            steps_done=0,
            pos=0,
            tokens=pieces,
        )
        began = time.perf_counter()
        self.chip.launch(params)
        self.chip.wait()
        seconds = time.perf_counter() - began
        stopped = np.empty(1, dtype=np.uint32)
        self.chip.download(self.abort, stopped)
        if stopped[0]:
            raise HopTimeoutError(seconds=settings().watchdog_s)
        return seconds


def _median(run: Callable[[], float]) -> float:
    run()  # the first one pays for what is not yet there
    return sorted(run() for _ in range(REPEATS))[REPEATS // 2]
