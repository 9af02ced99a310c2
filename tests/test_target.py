"""Chips are data, and a request resolves to one of them or to a readable refusal."""

from __future__ import annotations

import pytest

from amk.errors import AmkError, BadOptionError, TargetArchMismatchError, UnknownArchError, UnknownTargetError
from amk.target import ARCH_SHARED_MEMORY_BYTES, ARCHS, TARGETS, Target, resolve_target


@pytest.mark.parametrize("chip", TARGETS.values(), ids=lambda chip: chip.name)
def test_a_record_is_possible(chip: Target) -> None:
    assert TARGETS[chip.name] is chip
    assert chip.arch in ARCHS
    assert chip.stage_bytes * chip.stages <= chip.shared_memory_bytes <= ARCH_SHARED_MEMORY_BYTES[chip.arch]
    assert chip.stage_bytes <= chip.in_flight_bytes <= chip.stage_bytes * chip.stages
    assert chip.workers >= 1
    assert chip.consumer_warps >= 1
    assert chip.bandwidth_bytes_per_s > 0


@pytest.mark.parametrize(
    ("arch", "name"), [("cpu", "cpu"), ("sm_80", "a100"), ("sm_90", "h200"), ("sm_120", "rtx5090"), (None, "cpu")]
)
def test_an_arch_has_a_default_chip(arch: str | None, name: str) -> None:
    assert resolve_target(arch=arch, target=None).name == name


def test_a_named_chip_brings_its_arch() -> None:
    assert resolve_target(arch=None, target="h100-pcie").arch == "sm_90"


def test_a_present_devices_own_count_wins() -> None:
    planned = resolve_target(arch="sm_90", target=None, workers=66)
    assert planned.workers == 66
    assert planned.stages == TARGETS["h200"].stages
    assert TARGETS["h200"].workers == 132


@pytest.mark.parametrize(
    ("arch", "target", "workers", "refusal"),
    [
        ("sm_91", None, None, UnknownArchError),
        (None, "h300", None, UnknownTargetError),
        ("sm_80", "h200", None, TargetArchMismatchError),
        ("cpu", None, 0, BadOptionError),
        ("cpu", None, 1025, BadOptionError),
    ],
)
def test_refusals(arch: str | None, target: str | None, workers: int | None, refusal: type[AmkError]) -> None:
    with pytest.raises(refusal):
        resolve_target(arch=arch, target=target, workers=workers)
