"""The inputs of a call, in storages on the device: new ones, or those of the call before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import torch
from torch import Tensor

from amk.contracts.harness.bits import overwrite_flat, same_bits
from amk.contracts.outcomes import Value
from amk.contracts.wire import DTYPES, TensorNode, TupleNode, tensor_nodes, unpack, view_of

_clone, _to, _view = torch.Tensor.clone, torch.Tensor.to, torch.Tensor.view
_copy = torch.Tensor.copy_

COMPLEX = {torch.float16: torch.complex32, torch.float32: torch.complex64, torch.float64: torch.complex128}


@dataclass(frozen=True, slots=True)
class Plan:
    """Inputs in the dtype of the call; ``flats`` are on the CPU and are never given to the kernel."""

    tree: TupleNode
    nodes: tuple[TensorNode, ...]
    flats: tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """Inputs of one call: ``leaves`` are the tensors among ``arguments``, in order, in the storages ``flats``."""

    plan: Plan
    arguments: tuple[Value, ...]
    leaves: tuple[Tensor, ...]
    flats: tuple[Tensor, ...]

    def changed(self) -> tuple[str, ...]:
        """Labels of tensors that are not what they were, or whose storage is not, any byte of it."""
        touched = {
            at
            for at, (now, before) in enumerate(zip(self.flats, self.plan.flats, strict=True))
            if not same_bits(_to(now, "cpu"), before)
        }
        return tuple(
            f"input {at}"
            for at, (node, leaf) in enumerate(zip(self.plan.nodes, self.leaves, strict=True))
            if node.storage in touched or not _fits(leaf, node, self.flats[node.storage])
        )


def planned(tree: TupleNode, flats: Sequence[Tensor], dtype: torch.dtype | None) -> Plan:
    """Inputs with their floating tensors in ``dtype``.

    A storage is cast whole, so that views, strides and guard bands stay what they are.
    """
    nodes = tensor_nodes(tree)
    places: dict[tuple[int, str], int] = {}
    cast: list[Tensor] = []
    renamed: list[TensorNode] = []
    for node in nodes:
        wanted = _cast_to(DTYPES[node.dtype], dtype)
        key = (node.storage, "" if wanted is None else node.dtype)
        if key not in places:
            places[key] = len(cast)
            cast.append(flats[node.storage] if wanted is None else _recast(flats[node.storage], node, wanted))
        name = node.dtype if wanted is None else str(wanted).removeprefix("torch.")
        renamed.append(msgspec.structs.replace(node, storage=places[key], dtype=name))
    return Plan(tree, tuple(renamed), tuple(cast))


def _cast_to(own: torch.dtype, dtype: torch.dtype | None) -> torch.dtype | None:
    """What a tensor of dtype ``own`` becomes; None: it stays."""
    if dtype is None or own == dtype:
        return None
    if own.is_complex:
        return None if COMPLEX.get(dtype, own) == own else COMPLEX[dtype]
    return dtype if own.is_floating_point else None


def _recast(flat: Tensor, node: TensorNode, dtype: torch.dtype) -> Tensor:
    own = DTYPES[node.dtype]
    whole = flat[: flat.numel() // own.itemsize * own.itemsize]
    return _view(_to(_view(whole, own), dtype), torch.uint8)


def place(plan: Plan, device: str, before: Placed | None) -> Placed:
    """Put inputs where the kernel will find them.

    Parameters
    ----------
    before
        Inputs of another call, whose storages are to be overwritten with these, as far as they have the same size;
        None for storages of their own.
    """
    if before is not None and _alike(plan, before):
        leaves = tuple(
            leaf if _fits(leaf, node, flat) else view_of(flat, node)
            for leaf, node in zip(before.leaves, plan.nodes, strict=True)
            for flat in (before.flats[node.storage],)
        )
        for at, (target, source) in enumerate(zip(before.flats, plan.flats, strict=True)):
            seen_by = [leaf for leaf, node in zip(leaves, plan.nodes, strict=True) if node.storage == at]
            overwrite_flat(target, source, seen_by)
        return _arranged(plan, leaves, before.flats)
    flats = tuple(_clone(flat) if device == "cpu" else _to(flat, device) for flat in plan.flats)
    return _arranged(plan, tuple(view_of(flats[node.storage], node) for node in plan.nodes), flats)


def place_empty(plan: Plan, device: str) -> Placed:
    """Inputs in storages of zeros; ``fill`` gives them what they should hold."""
    flats = tuple(torch.zeros(flat.numel(), dtype=torch.uint8, device=device) for flat in plan.flats)
    return _arranged(plan, tuple(view_of(flats[node.storage], node) for node in plan.nodes), flats)


def fill(placed: Placed, pinned: Sequence[Tensor]) -> None:
    """Enqueue, on the stream that is current, the copies that give ``place_empty``'s inputs what they should hold."""
    for target, source in zip(placed.flats, pinned, strict=True):
        _copy(target, source, non_blocking=True)


def _alike(plan: Plan, before: Placed) -> bool:
    return [flat.numel() for flat in plan.flats] == [flat.numel() for flat in before.flats] and len(plan.nodes) == len(
        before.leaves
    )


def _fits(leaf: Tensor, node: TensorNode, flat: Tensor) -> bool:
    """Whether a tensor still is what ``node`` says, in the same memory."""
    return (
        leaf.untyped_storage().data_ptr() == flat.untyped_storage().data_ptr()
        and str(leaf.dtype).removeprefix("torch.") == node.dtype
        and tuple(leaf.shape) == node.shape
        and tuple(leaf.stride()) == node.stride
        and leaf.storage_offset() == node.offset
    )


def _arranged(plan: Plan, leaves: tuple[Tensor, ...], flats: tuple[Tensor, ...]) -> Placed:
    for leaf, node in zip(leaves, plan.nodes, strict=True):
        leaf.requires_grad_(node.requires_grad)
        leaf.grad = None
    remaining = iter(leaves)
    arguments = unpack(plan.tree, lambda node: next(remaining))
    assert isinstance(arguments, tuple)
    return Placed(plan, arguments, leaves, flats)
