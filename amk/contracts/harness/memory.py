"""Memory in other states than a quiet test leaves it in: poisoned when fresh, scattered, with cold caches."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from amk.contracts.wire import flat_of

M_PERTURB: Final = -6  # of mallopt(3): allocated memory is filled with the complement of the value
HOST_CACHE_BYTES: Final = 4 << 20
DEVICE_CACHE_BYTES: Final = 128 << 20  # above the L2 of any chip amk knows
BLOCKS_MAX: Final = 24
DEVICE_BLOCKS: Final = ((1 << 20, 8), (20 << 20, 4), (64 << 20, 4), (256 << 20, 2))
"""(bytes, how many): they fill the segments that torch's allocator for devices takes for small and large requests."""

aten = torch.ops.aten
FRESH: Final = frozenset(
    {
        aten.empty.memory_format,
        aten.empty_like.default,
        aten.empty_strided.default,
        aten.empty_permuted.default,
        aten.new_empty.default,
        aten.new_empty_strided.default,
    }
)
RESIZED: Final = aten.resize_.default

_libc = ctypes.CDLL(None)
_empty, _fill = torch.empty, torch.Tensor.fill_
_snapshot: Any = torch.cuda.memory_snapshot
_collect, _set_interval, _interval = gc.collect, sys.setswitchinterval, sys.getswitchinterval()


class _Poisoned(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Fills what comes uninitialised from torch's own functions, as soon as it is there."""

    def __init__(self, byte: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._byte = byte

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        before = args[0].untyped_storage().nbytes() if func is RESIZED else 0
        result = func(*args, **(kwargs or {}))
        if func is RESIZED or func in FRESH:
            _poison(result, before, self._byte)
        return result


def _poison(tensor: Tensor, start: int, byte: int) -> None:
    if tensor.layout is torch.strided and tensor.device.type != "meta" and tensor.untyped_storage().nbytes() > start:
        _fill(flat_of(tensor)[start:], byte)


@contextlib.contextmanager
def poisoned(byte: int | None, device: str, *, through_torch: bool = True) -> Iterator[None]:
    """Memory that is allocated within is filled with ``byte`` before anyone sees it.

    Parameters
    ----------
    through_torch
        Also what torch hands out from memory that it had kept; without, only what comes from the C library, and from
        the blocks that torch's allocator for a device holds at the beginning.
    """
    if byte is None:
        yield
        return
    if device == "cuda":
        _fill_blocks(byte)
    # The C library takes 0 for no filling, and forms the complement of the whole integer: the ninth bit keeps it
    # from being 0, and is cut off where the byte is written.
    _libc.mallopt(M_PERTURB, 0x100 | (byte ^ 0xFF))
    try:
        with _Poisoned(byte) if through_torch else contextlib.nullcontext():
            yield
    finally:
        _libc.mallopt(M_PERTURB, 0)


def _fill_blocks(byte: int) -> None:
    """Take blocks of many sizes from torch's allocator for devices, fill them, and give them back to it.

    Behind the large ones, what is left beside them and beside the inputs: a request goes where it leaves least.
    """
    torch.cuda.empty_cache()
    blocks = []
    for nbytes, count in DEVICE_BLOCKS:
        with contextlib.suppress(torch.OutOfMemoryError):
            blocks += [_fill(_empty(nbytes, dtype=torch.uint8, device="cuda"), byte) for _ in range(count)]
    with contextlib.suppress(torch.OutOfMemoryError):
        blocks += [_fill(_empty(nbytes, dtype=torch.uint8, device="cuda"), byte) for nbytes in _free_blocks()]
    torch.cuda.synchronize()


def _free_blocks() -> list[int]:
    """Sizes in bytes of the blocks that torch's allocator for devices has and nobody uses."""
    segments = _snapshot()
    return [block["size"] for segment in segments for block in segment["blocks"] if block["state"] == "inactive"]


@contextlib.contextmanager
def disturbed(source: random.Random, device: str) -> Iterator[None]:
    """Within, allocators, caches, the load and the order of threads are in a state that ``source`` draws."""
    blocks = [_block(source, "cpu") for _ in range(source.randrange(BLOCKS_MAX))]
    _fill(_empty(HOST_CACHE_BYTES, dtype=torch.uint8, device="cpu"), source.randrange(256))
    if device == "cuda":
        blocks += [_block(source, device) for _ in range(source.randrange(BLOCKS_MAX))]
        _fill(_empty(DEVICE_CACHE_BYTES, dtype=torch.uint8, device=device), source.randrange(256))
        if source.random() < 0.5:
            _load_device()
    kept = [block for block in blocks if source.random() < 0.5]
    blocks.clear()
    _collect()
    _set_interval(10.0 ** source.uniform(-6.0, -2.0))
    try:
        yield
    finally:
        _set_interval(_interval)
        kept.clear()


def _block(source: random.Random, device: str) -> Tensor:
    """A block of a size from 16 bytes to 1 MiB, with some byte all over."""
    size = int(2.0 ** source.uniform(4.0, 20.0))
    return _fill(_empty(size, dtype=torch.uint8, device=device), source.randrange(256))


def _load_device() -> None:
    """Keep the device busy on another stream for some milliseconds."""
    with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
        busy = _fill(_empty((2048, 2048), device="cuda"), 1.0)
        for _ in range(4):
            busy = torch.mm(busy, busy)
