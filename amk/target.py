"""Chips as frozen data. A new chip is a record here, never a branch elsewhere.

Figures are the vendors' public ones for the part named, unless a chip's record says that they were measured.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from amk.errors import BadOptionError, TargetArchMismatchError, UnknownArchError, UnknownTargetError


class Target(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One chip, as the compiler sees it.

    Attributes
    ----------
    name, arch
        ``arch`` is the code generator's target: ``cpu``, ``host``, ``sm_80``, ``sm_90`` or ``sm_120``.
    workers
        Thread blocks that are co-resident at one block per SM; the number of SMs.
    shared_memory_bytes
        Most shared memory one block may ask for.
    l2_bytes, bandwidth_bytes_per_s
        Size of the L2 cache; peak rate of device memory.
    stage_bytes, stages
        The weight ring of a worker: ``stages`` stages of ``stage_bytes`` each.
    in_flight_bytes
        Cap on the bulk copies outstanding per worker; near the bandwidth-delay product, so that a dependency's
        round trip does not queue behind the stream. Twice that while the worker's consumers are in the task that is
        streamed.
    consumer_warps
        Warps that compute, beside the one that streams.
    k_chunk
        Elements of an activation row staged in shared memory at once.
    hop_us
        Estimated cost of one dependency between workers, for the cost model.
    drift
        The most tasks by which warps of one worker may run ahead of each other (obligation V4 of the validator).
    """

    name: str
    arch: str
    workers: int
    shared_memory_bytes: int
    l2_bytes: int
    bandwidth_bytes_per_s: int
    stage_bytes: int
    stages: int
    in_flight_bytes: int
    consumer_warps: int
    k_chunk: int
    hop_us: float
    drift: int


KB: Final = 1024
MB: Final = 1024 * KB
GBPS: Final = 1_000_000_000

ARCHS: Final = ("cpu", "host", "sm_80", "sm_90", "sm_120")

# The most shared memory a block of the architecture may ask for (CUDA C++ Programming Guide, compute capabilities).
ARCH_SHARED_MEMORY_BYTES: Final = {
    "cpu": 1 * MB,
    "host": 227 * KB,
    "sm_80": 163 * KB,
    "sm_90": 227 * KB,
    "sm_120": 99 * KB,
}

_CPU = Target(
    name="cpu",
    arch="cpu",
    workers=4,
    shared_memory_bytes=1 * MB,
    l2_bytes=1 * MB,
    bandwidth_bytes_per_s=20 * GBPS,
    stage_bytes=16 * KB,
    stages=8,
    in_flight_bytes=32 * KB,
    consumer_warps=4,
    k_chunk=4096,
    hop_us=20.0,
    drift=0,
)

# A block of the host is one thread of its processor, so there are few, and small.
_HOST = replace(
    _CPU,
    name="host",
    arch="host",
    workers=8,
    shared_memory_bytes=160 * KB,
    stage_bytes=8 * KB,
    stages=6,
    in_flight_bytes=16 * KB,
    k_chunk=2048,
    drift=1,
)

_A100 = Target(
    name="a100",
    arch="sm_80",
    workers=108,
    shared_memory_bytes=163 * KB,
    l2_bytes=40 * MB,
    bandwidth_bytes_per_s=1_555 * GBPS,
    stage_bytes=16 * KB,
    stages=4,
    in_flight_bytes=32 * KB,
    consumer_warps=11,
    k_chunk=2048,
    hop_us=2.0,
    drift=1,
)

_H200 = Target(
    name="h200",
    arch="sm_90",
    workers=132,
    shared_memory_bytes=227 * KB,
    l2_bytes=60 * MB,
    bandwidth_bytes_per_s=4_400 * GBPS,
    stage_bytes=32 * KB,
    stages=4,
    in_flight_bytes=32 * KB,
    consumer_warps=16,
    k_chunk=2048,
    hop_us=2.0,
    drift=1,
)

_RTX5090 = Target(
    name="rtx5090",
    arch="sm_120",
    workers=170,
    shared_memory_bytes=99 * KB,
    l2_bytes=96 * MB,
    bandwidth_bytes_per_s=1_792 * GBPS,
    stage_bytes=8 * KB,
    stages=6,
    in_flight_bytes=16 * KB,
    consumer_warps=8,
    k_chunk=1024,
    hop_us=2.0,
    drift=1,
)

TARGETS: Final[dict[str, Target]] = {
    target.name: target
    for target in (
        _CPU,
        _HOST,
        _A100,
        replace(_A100, name="a100-80gb", bandwidth_bytes_per_s=2_039 * GBPS),
        _H200,
        replace(_H200, name="h100-sxm", l2_bytes=50 * MB, bandwidth_bytes_per_s=3_350 * GBPS),
        replace(_H200, name="h100-pcie", workers=114, l2_bytes=50 * MB, bandwidth_bytes_per_s=2_000 * GBPS),
        _RTX5090,
    )
}

_DEFAULT: Final = {"cpu": "cpu", "host": "host", "sm_80": "a100", "sm_90": "h200", "sm_120": "rtx5090"}


def resolve_target(*, arch: str | None, target: str | None, workers: int | None = None) -> Target:
    """The chip record for a request.

    Parameters
    ----------
    arch
        One of ``ARCHS``; None when ``target`` decides.
    target
        A name in ``TARGETS``; None for the arch's default chip.
    workers
        A present device's own number of SMs, or a number to plan for; overrides the record's.

    Raises
    ------
    UnknownArchError, UnknownTargetError, TargetArchMismatchError, BadOptionError
    """
    if arch is not None and arch not in ARCHS:
        raise UnknownArchError(arch=arch, known=", ".join(ARCHS))
    name = target if target is not None else _DEFAULT[arch or "cpu"]
    if name not in TARGETS:
        raise UnknownTargetError(target=name, known=", ".join(sorted(TARGETS)))
    chip = TARGETS[name]
    if arch == "host" and chip.arch != "cpu":
        chip = replace(chip, name=f"{name}-on-host", arch="host")  # its schedule, on this processor
    if arch is not None and chip.arch != arch:
        raise TargetArchMismatchError(target=name, actual=chip.arch, arch=arch)
    if workers is None:
        return chip
    if not 1 <= workers <= 1024:
        raise BadOptionError(option="workers", value=workers, why="a launch has 1 to 1024 workers", fix="1..1024")
    return replace(chip, workers=workers)
