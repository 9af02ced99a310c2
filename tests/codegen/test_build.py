"""Cubins of the kernel for every architecture, with no GPU: they build, they spill nothing, they fit."""

from __future__ import annotations

import json
from dataclasses import replace as replaced
from functools import cache
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from transformers import AutoModelForCausalLM

import amk
from amk.codegen.cache import cubin_for
from amk.codegen.emit import KERNEL, CudaSource, emit, render
from amk.codegen.errors import CompileFailedError
from amk.codegen.nvrtc import build
from amk.frontend.aliases import shipped_config
from amk.frontend.trace import hf_config
from amk.validator import certify
from amk.validator.limits import SCRATCH_BYTES
from tests.codegen.shapes import ARCHS, SHAPES, scheduled

SCHEDULERS, REGISTERS = 4, 16_384
"""Of a multiprocessor, and the registers of each, among which a block's warps are dealt out (CUDA C++ Programming
Guide, compute capabilities)."""


@cache
def source_of(shape: str, arch: str, *, bf16: bool = False) -> CudaSource:
    return emit(certify(scheduled(shape, arch, bf16_kv=bf16)))


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """One build cache for the tests of all workers, so that no kernel is built twice."""
    base = tmp_path_factory.getbasetemp()
    return (base if worker_id == "master" else base.parent) / "cubins-home"


@pytest.fixture
def home(shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMK_HOME", str(shared_home))


@pytest.mark.parametrize("bf16", [False, True], ids=["f32", "bf16"])
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_kernel_builds_without_spills(shape: str, arch: str, bf16: bool, home: None) -> None:
    source = source_of(shape, arch, bf16=bf16)
    cubin = cubin_for(source)
    assert cubin.arch == source.arch
    assert cubin.source_digest == source.digest()
    assert KERNEL.encode() in cubin.code
    assert cubin.resources.spilled_bytes == 0
    warps = -(-source.config.threads // (32 * SCHEDULERS))
    assert 0 < cubin.resources.registers <= REGISTERS // (32 * warps)
    assert cubin.resources.shared_bytes == 0, "all shared memory is the launch's"


@pytest.mark.parametrize("group", [0, 64])
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_kernel_of_eight_bit_weights_builds_without_spills(shape: str, arch: str, group: int, home: None) -> None:
    assert cubin_for(emit(certify(scheduled(shape, arch, group=group)))).resources.spilled_bytes == 0


# One layer of each: with biases, with norms of heads, with eight queries a cached head.
@pytest.mark.parametrize("dtype", ["bf16", "w8a16"])
@pytest.mark.parametrize("alias", ["qwen2.5-0.5b", "qwen3-0.6b", "tinyllama-1.1b"])
def test_a_shipped_shape_builds_without_spills(alias: str, dtype: str, home: None) -> None:
    config = json.loads(shipped_config(alias).read_text()) | {"num_hidden_layers": 1, "vocab_size": 512}
    model = AutoModelForCausalLM.from_config(hf_config(config), dtype=torch.bfloat16)
    facts = amk.compile(model, arch="sm_90", dtype=dtype, max_context=1024, progress=False).manifest.kernel
    assert facts is not None  # what spills is refused
    assert facts.registers is not None
    assert facts.registers <= REGISTERS // (32 * -(-facts.threads // (32 * SCHEDULERS)))


def test_two_builds_are_the_same_code(home: None) -> None:
    source = source_of("smollm2", "sm_90")
    assert build(source).code == cubin_for(source).code


@pytest.mark.parametrize("arch", ARCHS)
def test_the_compiler_holds_shared_memory_to_what_the_launch_asks_for(arch: str) -> None:
    # What is asked for is enough, or no kernel above would build; here it is a little less than what is needed.
    source = source_of("smollm2", arch)
    config = replace(source.config, shared_bytes=source.config.shared_bytes - SCRATCH_BYTES)
    with pytest.raises(CompileFailedError, match="more than the launch asks for"):
        build(replaced(source, text=render(config)))


@pytest.mark.parametrize("arch", ARCHS)
def test_every_header_can_be_included_alone(arch: str) -> None:
    source = source_of("smollm2", arch)
    ours = "prim/async/copy.cuh", "prim/bulk/copy.cuh"
    for name in sorted(source.headers):
        if name not in ours or source.headers[name] == source.headers["copy.cuh"]:
            build(replaced(source, text=f'#include "{name}"\n'))
