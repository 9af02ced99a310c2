"""NVRTC on small programs: what it makes, and what is said when it cannot."""

from __future__ import annotations

import sys

import pytest

from amk.codegen.emit import CudaSource
from amk.codegen.errors import CompileFailedError, NoCompilerError, SpillError
from amk.codegen.nvrtc import Resources, build, nvrtc_version, options_for, parse_log
from tests.codegen.programs import source

LOG = """\
ptxas info    : 24 bytes gmem
ptxas info    : Compiling entry function 'amk_kernel' for 'sm_80'
ptxas info    : Function properties for amk_kernel
ptxas         .     48 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 96 registers, used 2 barriers, 112 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Compile time = 368.733 ms
ptxas info    : Function properties for _ZN3amk8run_gemvEv
ptxas         .     64 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
"""


def test_the_log_is_summed_over_all_functions() -> None:
    assert parse_log(LOG) == Resources(registers=96, spilled_bytes=44, stack_bytes=112, shared_bytes=1024)


def test_a_log_without_a_word_is_all_zero() -> None:
    assert parse_log("") == Resources(registers=0, spilled_bytes=0, stack_bytes=0, shared_bytes=0)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_a_cubin_says_what_made_it(arch: str) -> None:
    program = source(arch=arch)
    cubin = build(program)
    assert cubin.code.startswith(b"\x7fELF")
    assert b"amk_kernel" in cubin.code
    assert (cubin.arch, cubin.source_digest, cubin.nvrtc) == (arch, program.digest(), nvrtc_version())
    assert cubin.options == options_for(arch)
    assert f"--gpu-architecture={arch}" in cubin.options
    assert cubin.resources.registers > 0
    assert cubin.resources.spilled_bytes == 0
    assert len(cubin.digest()) == 64


def test_headers_are_found_by_name() -> None:
    text = '#include "some/where.cuh"\nextern "C" __global__ void amk_kernel(int* x) { *x = answer(); }'
    build(source(text, headers={"some/where.cuh": "__device__ int answer() { return 42; }"}))


def test_what_does_not_compile_comes_with_the_log() -> None:
    with pytest.raises(CompileFailedError) as caught:
        build(source('#include "broken.cuh"\n', headers={"broken.cuh": "\nint broken = no_such_name;\n"}))
    message = str(caught.value)
    assert 'identifier "no_such_name" is undefined' in message
    assert "broken.cuh(2)" in message
    assert f"NVRTC {nvrtc_version()}" in message
    assert "sm_90" in message


def test_an_unknown_architecture_does_not_compile() -> None:
    with pytest.raises(CompileFailedError, match="gpu-architecture"):
        build(source(arch="sm_1"))


def test_a_static_assertion_fails_the_build() -> None:
    with pytest.raises(CompileFailedError, match="the world is round"):
        build(source('static_assert(1 == 2, "the world is round");'))


def test_a_spill_fails_the_build() -> None:
    # A hundred values that live at once, in a block so large that a thread has 64 registers.
    text = """
    extern "C" __global__ void __launch_bounds__(1024, 1) amk_kernel(volatile float* x) {
      float kept[100];
    #pragma unroll
      for (int i = 0; i < 100; ++i) kept[i] = x[i];
    #pragma unroll
      for (int i = 99; i >= 0; --i) x[i] = kept[i] * kept[(i + 37) % 100];
    }
    """
    with pytest.raises(SpillError, match=r"spills \d+ bytes"):
        build(source(text))


def test_without_the_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(NoCompilerError, match=r"cuda\.bindings") as caught:
        nvrtc_version()
    assert "pip install" in caught.value.remedy


def not_found() -> None:
    """As cuda-python tells that a shared library is not there."""
    raise RuntimeError("Failure finding libnvrtc.so\nwhere it was looked for ...")


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuda.bindings.nvrtc.nvrtcVersion", not_found)
    with pytest.raises(NoCompilerError, match=r"cannot be used: Failure finding libnvrtc\.so\n  mend"):
        build(source())


def test_a_call_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings.nvrtc import nvrtcResult

    no_memory = nvrtcResult.NVRTC_ERROR_OUT_OF_MEMORY
    monkeypatch.setattr("cuda.bindings.nvrtc.nvrtcCreateProgram", lambda *_: (no_memory, None))
    with pytest.raises(NoCompilerError, match="NVRTC_ERROR_OUT_OF_MEMORY"):
        build(source())


def test_a_source_is_told_apart_by_all_that_it_is() -> None:
    headers = {"a.cuh": "1", "b.cuh": "2"}
    sources: list[CudaSource] = [
        source(),
        source("// other\n"),
        source(arch="sm_80"),
        source(headers=headers),
        source(headers={"a.cuh": "1", "b.cuh": "3"}),
        source(headers={"a.cuh": "1", "c.cuh": "2"}),
    ]
    assert len({program.digest() for program in sources}) == len(sources)
    assert source(headers=headers).digest() == source(headers=dict(reversed(headers.items()))).digest()
