"""Target -> the source of a kernel that measures the chip: how fast it reads, and what a hop costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from amk.codegen import abi
from amk.codegen.config import WARP, KernelConfig
from amk.codegen.emit import KERNEL, CudaSource, environment, headers_for
from amk.codegen.errors import NotGeneratableError
from amk.codegen.supported import ARCHS

if TYPE_CHECKING:
    from amk.target import Target

TEMPLATE: Final = "limits.cu.j2"

_SCRATCH_BYTES: Final = 1024
"""Barriers and a flag beside the ring."""


def limits_source(target: Target) -> CudaSource:
    """The kernel of csrc/limits for one block on each of the target's workers, its ring and its cap on copies.

    Raises
    ------
    NotGeneratableError
        The target is the reference machine's.
    """
    if target.arch not in (*ARCHS, "host"):
        raise NotGeneratableError(feature=f"arch {target.arch}", fix=f"measure one of {', '.join(ARCHS)}")
    config = KernelConfig(
        consumer_warps=1,
        stages=target.stages,
        stage_bytes=target.stage_bytes,
        in_flight_bytes=max(target.in_flight_bytes, target.stage_bytes),
        work_bytes=0,
        shared_bytes=target.stages * target.stage_bytes + _SCRATCH_BYTES,
        past_rows=0,
        run_rows=0,
        run_strips=0,
        tokens_max=0,
        head_dim=0,
        head_stride=0,
        group=0,
        kv_bytes=0,
        head_norm=abi.HEAD_NORMS["none"],
        softcap=False,
        tagged_hidden=False,
        tagged_qkv=False,
        gemvs=(),
    )
    text = (
        environment()
        .get_template(TEMPLATE)
        .render(
            blocks=target.workers,
            stages=config.stages,
            stage_bytes=config.stage_bytes,
            in_flight_bytes=config.in_flight_bytes,
            shared_bytes=config.shared_bytes,
            threads=2 * WARP,
            kernel=KERNEL,
        )
    )
    return CudaSource(text=text, headers=headers_for(target.arch), arch=target.arch, config=config)
