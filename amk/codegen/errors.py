"""Failures of making a kernel."""

from __future__ import annotations

from amk.errors import BuildError


class NotGeneratableError(BuildError):
    code = "AMK-B511"
    what = "no kernel is generated for {feature}"
    mend = "{fix}"


class NoCompilerError(BuildError):
    code = "AMK-B512"
    what = "NVRTC cannot be used: {why}"
    mend = "pip install 'nvidia-cuda-nvrtc>=13,<14' 'cuda-python>=13,<14'"


class CompileFailedError(BuildError):
    code = "AMK-B513"
    what = "{compiler} does not compile the kernel for {arch}:\n{log}"
    mend = "this is a defect in amk: please report it with this message"


class SpillError(BuildError):
    code = "AMK-B514"
    what = "the kernel for {arch} spills {spilled} bytes of registers to memory"
    mend = "use fewer consumer warps or a smaller tokens_per_pass for this target"


class NoHostCompilerError(BuildError):
    code = "AMK-B515"
    what = "there is no C++ compiler to build the kernel for this processor: looked for {looked}"
    mend = "install g++ (Debian: apt install g++) or clang++, or set AMK_CXX to one"
