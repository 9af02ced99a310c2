"""The kernel of a proved schedule: built, or found in the build cache, and identified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from amk.ir.record import Record

if TYPE_CHECKING:
    from amk.codegen.config import KernelConfig
    from amk.codegen.nvrtc import Cubin
    from amk.validator import ValidatedSchedule


class KernelFacts(Record):
    """What a kernel is bound to, and what it takes: digests of source and machine code, and what compiled it."""

    source: str
    cubin: str
    nvrtc: str
    options: tuple[str, ...]
    registers: int
    shared_bytes: int
    threads: int

    def __str__(self) -> str:
        return (
            f"cubin {self.cubin[:12]} of source {self.source[:12]} by NVRTC {self.nvrtc}: {self.threads} threads, "
            f"{self.registers} registers, {self.shared_bytes} bytes of shared memory, no spills"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """Machine code, the constants it was built with, and its facts."""

    cubin: Cubin
    config: KernelConfig
    facts: KernelFacts


def build_kernel(validated: ValidatedSchedule) -> Kernel:
    """The kernel of ``validated``; its source is always made again, its cubin taken from this machine's cache alone.

    Raises
    ------
    BuildError
    """
    from amk.codegen.cache import cubin_for
    from amk.codegen.emit import emit

    source = emit(validated)
    cubin = cubin_for(source)
    facts = KernelFacts(
        source=source.digest(),
        cubin=cubin.digest(),
        nvrtc=cubin.nvrtc,
        options=cubin.options,
        registers=cubin.resources.registers,
        shared_bytes=source.config.shared_bytes,
        threads=source.config.threads,
    )
    return Kernel(cubin=cubin, config=source.config, facts=facts)
