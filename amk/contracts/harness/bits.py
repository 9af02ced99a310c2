"""Tensors as bits: copies, comparisons and digests that know no tolerance and no NaN.

Torch's functions are held here from before a kernel is loaded, since it may replace them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from amk.contracts.wire import memory_of

_empty, _equal = torch.empty, torch.equal
_clone, _detach, _copy = torch.Tensor.clone, torch.Tensor.detach, torch.Tensor.copy_
_contiguous, _reshape, _view, _to = (
    torch.Tensor.contiguous,
    torch.Tensor.reshape,
    torch.Tensor.view,
    torch.Tensor.to,
)
_sha256 = hashlib.sha256
_shares_memory: Callable[..., bool] = np.shares_memory
_asarray = np.asarray
_no_grad = torch.no_grad
_no_function = torch._C.DisableTorchFunctionSubclass  # noqa: SLF001 - torch has no public name for it
_bump = torch.autograd.graph.increment_version

OVERLAP_WORK_MAX = 100_000
"""Of the search for an element that two tensors share; past it they count as sharing one."""


def bytes_of(tensor: Tensor) -> Tensor:
    """uint8 [bytes]: the elements in order; shares memory where ``tensor`` is contiguous."""
    return _view(_reshape(_contiguous(_detach(tensor)), (-1,)), torch.uint8)


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether dtype, shape and every bit are the same."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(_equal(bytes_of(one), bytes_of(other)))


def copied(tensor: Tensor) -> Tensor:
    """A contiguous copy on the CPU, without a graph, of whatever kind of tensor this is.

    A tensor that has no elements which could be read gives an empty one.
    """
    with _no_grad(), _no_function():
        plain = _detach(tensor)
        if plain.layout is not torch.strided:
            plain = plain.to_dense()
        plain = plain.resolve_conj().resolve_neg()
        if plain.device.type == "meta":
            return _empty(0, dtype=plain.dtype, device="cpu")
        return _clone(_to(plain, "cpu"), memory_format=torch.contiguous_format)


def overwrite(target: Tensor, source: Tensor) -> None:
    """Write ``source``'s elements into ``target`` in place, as an optimiser's step would: its version goes up."""
    with _no_grad():
        _copy(_detach(target), source)


def overwrite_flat(target: Tensor, source: Tensor, seen_by: Sequence[Tensor]) -> None:
    """Write all bytes of a storage (uint8); the versions of the tensors that see it go up."""
    with _no_grad():
        _copy(target, source)
    for tensor in seen_by:
        _bump(tensor)


def digest(tensors: Sequence[Tensor]) -> str:
    """sha256, in hex, of tensors on the CPU: dtypes, shapes, elements."""
    total = _sha256()
    for tensor in tensors:
        total.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        total.update(memory_of(bytes_of(tensor)))
    return total.hexdigest()


class _Span:
    """What numpy needs to know of an array to compare addresses; the memory itself is never touched."""

    def __init__(self, tensor: Tensor) -> None:
        size = tensor.element_size()
        self.__array_interface__ = {
            "data": (tensor.data_ptr(), False),
            "shape": tuple(tensor.shape),
            "strides": tuple(size * step for step in tensor.stride()),
            "typestr": f"|V{size}",
            "version": 3,
        }


def overlap(one: Tensor, other: Tensor) -> bool:
    """Whether two strided tensors, on any device, have a byte in common."""
    if one.device != other.device or not one.numel() or not other.numel():
        return False
    if one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr() and not _near(one, other):
        return False
    try:
        return _shares_memory(_asarray(_Span(one)), _asarray(_Span(other)), max_work=OVERLAP_WORK_MAX)
    except np.exceptions.TooHardError:
        return True


def _near(one: Tensor, other: Tensor) -> bool:
    """Whether the storages' addresses overlap: memory can be in two storages, through numpy or a slice of a buffer."""
    a, b = one.untyped_storage(), other.untyped_storage()
    return a.data_ptr() < b.data_ptr() + b.nbytes() and b.data_ptr() < a.data_ptr() + a.nbytes()
