"""CudaSource -> Cubin, by NVRTC alone: no nvcc, no toolkit, no GPU, no NVIDIA header."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

from amk.codegen.errors import CompileFailedError, NoCompilerError, SpillError
from amk.ir.record import Record

if TYPE_CHECKING:
    from amk.codegen.emit import CudaSource


class Resources(Record):
    """What ptxas reports.

    Attributes
    ----------
    registers
        Of a thread.
    spilled_bytes
        Stored and loaded because registers ran out, over all functions.
    stack_bytes
        Of a thread's local memory, arrays that are indexed at run time included.
    shared_bytes
        Static shared memory; the kernel's own is dynamic, ``KernelConfig.shared_bytes``.
    """

    registers: int
    spilled_bytes: int
    stack_bytes: int
    shared_bytes: int


class Cubin(Record):
    """Machine code for one architecture, and what made it.

    Attributes
    ----------
    arch, source_digest
        Of its ``CudaSource``.
    nvrtc
        Version of the compiler.
    options
        Its flags.
    resources
        What the code needs.
    code
        The ELF image.
    """

    arch: str
    source_digest: str
    nvrtc: str
    options: tuple[str, ...]
    resources: Resources
    code: bytes

    def digest(self) -> str:
        """sha256 of the code, in hex: what a certificate names."""
        return hashlib.sha256(self.code).hexdigest()


def nvrtc_version() -> str:
    """``major.minor`` of the NVRTC that would be used.

    Raises
    ------
    NoCompilerError
    """
    major, minor = _call(_nvrtc().nvrtcVersion())
    return f"{major}.{minor}"


def options_for(arch: str) -> tuple[str, ...]:
    """The flags of a build; part of its identity."""
    # The cache is amk's own: NVRTC's would hand out code without the log that tells of spills.
    return (f"--gpu-architecture={arch}", "--std=c++17", "--fmad=true", "--ptxas-options=-v", "--no-cache")


def build(source: CudaSource) -> Cubin:
    """Compile ``source``.

    Raises
    ------
    NoCompilerError, CompileFailedError, SpillError
    """
    nvrtc = _nvrtc()
    version = nvrtc_version()
    options = options_for(source.arch)
    names = [name.encode() for name in source.headers]
    texts = [text.encode() for text in source.headers.values()]
    program = _call(nvrtc.nvrtcCreateProgram(source.text.encode(), b"amk_kernel.cu", len(names), texts, names))
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        log = _read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program).decode(errors="replace")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileFailedError(compiler=f"NVRTC {version}", arch=source.arch, log=log.strip("\0\n"))
        code = _read(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    resources = parse_log(log)
    if resources.spilled_bytes:
        raise SpillError(arch=source.arch, spilled=resources.spilled_bytes)
    return Cubin(
        arch=source.arch,
        source_digest=source.digest(),
        nvrtc=version,
        options=options,
        resources=resources,
        code=code,
    )


def parse_log(log: str) -> Resources:
    """Resources out of what ``ptxas -v`` prints: a paragraph a function; 0 for what it does not mention."""

    def numbers(pattern: str) -> list[int]:
        return [int(found) for found in re.findall(pattern, log)]

    return Resources(
        registers=max(numbers(r"Used (\d+) registers"), default=0),
        spilled_bytes=sum(numbers(r"(\d+) bytes spill (?:stores|loads)")),
        stack_bytes=max(numbers(r"(\d+) bytes (?:stack frame|cumulative stack size)"), default=0),
        shared_bytes=max(numbers(r"(\d+) bytes smem"), default=0),
    )


def _nvrtc() -> Any:
    """cuda-python's binding, with the library behind it loaded; NoCompilerError if either is missing."""
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise NoCompilerError(why=error) from error
    try:
        nvrtc.nvrtcVersion()
    except RuntimeError as error:
        raise NoCompilerError(why=str(error).split("\n", 1)[0]) from error
    return nvrtc


def _call(result: tuple[Any, ...]) -> Any:
    """Unpack (status, value ...) of cuda-python; a status that is not success has no value to go on with."""
    status, *values = result
    if int(status) != 0:
        raise NoCompilerError(why=status.name)
    return values[0] if len(values) == 1 else tuple(values)


def _read(size_of: Any, read: Any, program: Any) -> bytes:
    """What ``read`` fills, of the size that ``size_of`` tells."""
    data = bytearray(int(_call(size_of(program))))
    _call(read(program, data))
    return bytes(data)
