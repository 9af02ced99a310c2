"""Small CUDA programs that are not the kernel."""

from __future__ import annotations

from amk.codegen.config import KernelConfig
from amk.codegen.emit import CudaSource
from amk.codegen.shapes import GemvShape

TRIVIAL = 'extern "C" __global__ void amk_kernel(float* x) { x[threadIdx.x] *= 2.0f; }\n'

GEMV = GemvShape(
    columns=32,
    prologue=0,
    epilogue=0,
    activation=0,
    bias=False,
    last_row_only=False,
    aligned=True,
    tagged_x=False,
    tagged_out=False,
    quantized=False,
    group_columns=0,
)

CONFIG = KernelConfig(
    consumer_warps=1,
    stages=1,
    stage_bytes=512,
    in_flight_bytes=512,
    work_bytes=128,
    shared_bytes=1024,
    past_rows=1,
    run_rows=1,
    run_strips=1,
    tokens_max=1,
    head_dim=8,
    head_stride=8,
    group=1,
    kv_bytes=4,
    head_norm=0,
    softcap=False,
    tagged_hidden=False,
    tagged_qkv=False,
    gemvs=(GEMV,),
)


def source(text: str = TRIVIAL, *, headers: dict[str, str] | None = None, arch: str = "sm_90") -> CudaSource:
    """``text`` as the code generator would hand it on."""
    return CudaSource(text=text, headers=headers or {}, arch=arch, config=CONFIG)
