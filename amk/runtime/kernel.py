"""The kernel of a proved schedule: built, or found in the build cache, and identified."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from amk.ir.record import Record

if TYPE_CHECKING:
    from amk.codegen.config import KernelConfig
    from amk.codegen.emit import CudaSource
    from amk.codegen.host import Program, Watch
    from amk.codegen.nvrtc import Cubin
    from amk.validator import ValidatedSchedule


class KernelFacts(Record):
    """What a kernel is bound to, and what it takes: digests of source and machine code, and what compiled it.

    ``registers`` are a thread's; None where the kernel runs on this machine's processor.
    """

    source: str
    code: str
    compiler: str
    options: tuple[str, ...]
    registers: int | None
    shared_bytes: int
    threads: int

    def __str__(self) -> str:
        registers = "" if self.registers is None else f", {self.registers} registers and no spills"
        return (
            f"code {self.code[:12]} of source {self.source[:12]} by {self.compiler}: {self.threads} threads, "
            f"{self.shared_bytes} bytes of shared memory{registers}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """Machine code, the constants it was built with, and its facts."""

    cubin: Cubin
    config: KernelConfig
    facts: KernelFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKernel:
    """The same for this machine's processor."""

    program: Program
    config: KernelConfig
    facts: KernelFacts


def build_kernel(validated: ValidatedSchedule, *, stamped: bool = False) -> Kernel:
    """The kernel of ``validated``; its source is always made again, its cubin taken from this machine's cache alone.

    ``stamped``: one that also writes when its tasks run.

    Raises
    ------
    BuildError
    """
    from amk.codegen.cache import cubin_for
    from amk.codegen.emit import emit

    source = emit(validated, stamped=stamped)
    cubin = cubin_for(source)
    facts = KernelFacts(
        source=source.digest(),
        code=cubin.digest(),
        compiler=f"NVRTC {cubin.nvrtc}",
        options=cubin.options,
        registers=cubin.resources.registers,
        shared_bytes=source.config.shared_bytes,
        threads=source.config.threads,
    )
    return Kernel(cubin=cubin, config=source.config, facts=facts)


def build_for_host(validated: ValidatedSchedule, watch: Watch = "nothing", *, stamped: bool = False) -> HostKernel:
    """The kernel of ``validated`` for this machine's processor, watched by ``watch``; cached as cubins are.

    Raises
    ------
    BuildError
    """
    from amk.codegen.emit import emit

    return host_kernel(emit(validated, stamped=stamped), watch)


def host_kernel(source: CudaSource, watch: Watch = "nothing") -> HostKernel:
    """The kernel of ``source`` for this machine's processor. Raises BuildError."""
    from amk.codegen.cache import program_for

    program = program_for(source, watch)
    facts = KernelFacts(
        source=source.digest(),
        code=program.digest(),
        compiler=program.compiler,
        options=program.options,
        registers=None,
        shared_bytes=source.config.shared_bytes,
        threads=source.config.threads,
    )
    return HostKernel(program=program, config=source.config, facts=facts)
