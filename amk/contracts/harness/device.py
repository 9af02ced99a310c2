"""What has to be done on a device around a call; on the CPU, nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import torch
from torch import Tensor

from amk.contracts.harness.placing import Placed, fill
from amk.contracts.outcomes import Died

Taken = TypeVar("Taken")

WAIT_CYCLES: Final = 100_000_000
"""Of a wait on the device: tens of milliseconds, longer than a launch takes to get there."""

_memory_errors: Final = (MemoryError, torch.OutOfMemoryError)
_OUT_OF_MEMORY: Final = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "Cannot allocate memory",
    "nvmlInit_v2_",  # torch, out of memory, asks NVML who holds it, and fails where a kernel's process may not ask
)
_DEVICE: Final = (
    "CUDA error",
    "CUDA_ERROR",
    "Triton Error",
    "CUDA driver error",
    "cudaError",
    "CUDNN_STATUS",
    "CUBLAS",
)


def ready(device: str, memory_bytes: int) -> None:
    """Set the device up, once a process: the judged arithmetic is IEEE's, so TF32 is off."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    if device == "cuda":
        torch.cuda.init()  # type: ignore[no-untyped-call]
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, memory_bytes / total))


def settle(device: str) -> None:
    """Wait for all work, and raise what an unchecked launch has left behind.

    Raises
    ------
    RuntimeError
        A launch before this has failed.
    """
    if device == "cuda":
        torch.cuda.synchronize()
        torch.empty(1, device=device).fill_(0)  # torch looks for a launch's error behind its own launches only
        torch.cuda.synchronize()


def random_state(device: str) -> dict[str, Tensor]:
    """The states of torch's generators, by label."""
    states = {"rng cpu": torch.get_rng_state()}
    if device == "cuda":
        states["rng cuda"] = torch.cuda.get_rng_state()
    return states


def pinned(flats: Sequence[Tensor]) -> list[Tensor]:
    return [flat.pin_memory() for flat in flats]


def call_late(
    call: Callable[..., object], placed: Placed, sources: Sequence[Tensor], take: Callable[[object], Taken]
) -> Taken:
    """Call on a side stream, on inputs that are there only when a long wait before the call is over.

    Not the first call in a process: that loads the kernel's code, and may wait for all of the device meanwhile.

    Parameters
    ----------
    placed
        Inputs whose storages hold zeros until then.
    sources
        What they should hold, in pinned memory.
    take
        Reads the results; called on the same stream.
    """
    torch.cuda.synchronize()
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        torch.cuda._sleep(WAIT_CYCLES)  # type: ignore[no-untyped-call]  # noqa: SLF001 - torch has no public name for it
        fill(placed, sources)
        taken = take(call(*placed.arguments))
        side.synchronize()
    torch.cuda.synchronize()
    return taken


def death_in(error: BaseException, device: str) -> Died | None:
    """The death that an error amounts to; None where the process can go on."""
    if isinstance(error, SystemExit):
        return Died(how="exit", detail=f"sys.exit({error.code!r})")
    text = _text(error)
    if isinstance(error, _memory_errors) or (
        isinstance(error, RuntimeError) and any(t in text for t in _OUT_OF_MEMORY)
    ):
        return Died(how="memory", detail=f"{type(error).__name__}: {text}")
    if device == "cuda" and any(t in text for t in _DEVICE) and not _is_well(device):
        return Died(how="device", detail=f"{type(error).__name__}: {text}")
    return None


def _is_well(device: str) -> bool:
    """Whether the device still works for this process: after an illegal access it does not."""
    try:
        settle(device)
        settle(device)
    except Exception:  # noqa: BLE001 - whatever it says, it says no
        return False
    return True


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - an error of the kernel's own making may raise here too
        return "an error whose text cannot be had"
