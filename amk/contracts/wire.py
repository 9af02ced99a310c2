"""Values as bytes, between the judge and a kernel's process: msgpack for what they are, raw bytes for what they hold.

A tensor is its dtype, shape, stride and offset, and the number of a storage. Each storage is sent whole and once, so
that views, expanded tensors and guard bands arrive as what they are. Nothing that is read here is executed: a frame
that a kernel has forged is at worst a wrong answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import msgspec
import torch
from torch import Tensor

from amk.contracts.errors import WireError
from amk.contracts.outcomes import Value

DEPTH_MAX: Final = 32
"""Of nested containers: also what ends a list that contains itself."""

NUMBER_MAX: Final = 1 << 56
"""Of a tensor's sizes, strides and offset: no storage is as large, and sums of them do not overflow."""

DTYPES: Final[dict[str, torch.dtype]] = {
    str(value).removeprefix("torch."): value
    for value in vars(torch).values()
    if isinstance(value, torch.dtype) and not str(value).startswith(("torch.q", "torch.bit"))
}
"""All that a strided tensor may have; quantized ones carry scales besides, and are not sent."""

# Held before a kernel is loaded: in its process it may put something else in their place.
_empty, _set, _numpy = torch.empty, torch.Tensor.set_, torch.Tensor.numpy
_no_function = torch._C.DisableTorchFunctionSubclass  # noqa: SLF001 - torch has no public name for it


class TensorNode(msgspec.Struct, frozen=True, array_like=True, tag="t"):
    """A tensor; ``storage`` counts within its frame, ``stride`` and ``offset`` count elements."""

    storage: int
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    requires_grad: bool


class ListNode(msgspec.Struct, frozen=True, array_like=True, tag="l"):
    items: tuple[Node, ...]


class TupleNode(msgspec.Struct, frozen=True, array_like=True, tag="u"):
    items: tuple[Node, ...]


class DictNode(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    keys: tuple[str, ...]
    items: tuple[Node, ...]


Node: TypeAlias = TensorNode | ListNode | TupleNode | DictNode | int | float | bool | str | None


class Storages:
    """The storages of one frame, each once.

    Attributes
    ----------
    flats
        One uint8 tensor a storage, all of its bytes, on the CPU.
    """

    def __init__(self) -> None:
        self.flats: list[Tensor] = []
        self._places: dict[tuple[int, int], int] = {}

    def place(self, tensor: Tensor) -> int:
        """The number of the storage of a strided tensor on the CPU."""
        flat = flat_of(tensor)
        key = (flat.data_ptr(), flat.numel())
        if not flat.numel() or key not in self._places:
            self._places[key] = len(self.flats)
            self.flats.append(flat)
        return self._places[key]


def flat_of(tensor: Tensor) -> Tensor:
    """uint8 [bytes of the storage]: shares memory with ``tensor``, wherever that is."""
    storage = tensor.untyped_storage()
    return _set(_empty(0, dtype=torch.uint8, device=tensor.device), storage, 0, (storage.nbytes(),), (1,))


def memory_of(flat: Tensor) -> memoryview:
    """The memory of a contiguous tensor on the CPU, as bytes that can be sent, received into and digested."""
    array: Any = _numpy(flat)
    return memoryview(array)


def view_of(flat: Tensor, node: TensorNode) -> Tensor:
    """The tensor that ``node`` describes, in the storage of ``flat`` (uint8, on any device).

    Raises
    ------
    WireError
        It does not lie within the storage, or has no such dtype.
    """
    dtype = DTYPES.get(node.dtype)
    if dtype is None or len(node.shape) != len(node.stride):
        raise WireError(what=f"a tensor of {node.dtype}, shape {node.shape} and stride {node.stride}")
    numbers = (*node.shape, *node.stride, node.offset)
    if min(numbers) < 0 or max(numbers) > NUMBER_MAX:
        raise WireError(what=f"a tensor of shape {node.shape}, stride {node.stride} and offset {node.offset}")
    last = node.offset + sum((size - 1) * step for size, step in zip(node.shape, node.stride, strict=True))
    nbytes = flat.untyped_storage().nbytes()
    if 0 not in node.shape and (last + 1) * dtype.itemsize > nbytes:
        raise WireError(what=f"a tensor of shape {node.shape} and stride {node.stride} in a storage of {nbytes} bytes")
    return _set(
        _empty(0, dtype=dtype, device=flat.device), flat.untyped_storage(), node.offset, node.shape, node.stride
    )


def pack(value: Value, storages: Storages, depth: int = 0) -> Node:
    """``value`` as nodes; its storages join ``storages``.

    Raises
    ------
    WireError
        It holds what cannot be sent; names it.
    """
    if depth > DEPTH_MAX:
        raise WireError(what=f"containers nested more than {DEPTH_MAX} deep")
    if isinstance(value, Tensor):
        return _pack_tensor(value, storages)
    if isinstance(value, (list, tuple)):
        items = tuple(pack(item, storages, depth + 1) for item in value)
        return ListNode(items) if isinstance(value, list) else TupleNode(items)
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise WireError(what="a dict with keys that are no texts")
        return DictNode(tuple(value), tuple(pack(item, storages, depth + 1) for item in value.values()))
    if value is None or isinstance(value, (bool, float, str)):
        return value
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise WireError(what=f"the integer {value}")
        return value
    raise WireError(what=f"a {type(value).__module__}.{type(value).__qualname__}")


def _pack_tensor(tensor: Tensor, storages: Storages) -> TensorNode:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.layout is not torch.strided or dtype not in DTYPES or tensor.device.type == "meta":
        raise WireError(what=f"a tensor of {dtype}, {tensor.layout}, on {tensor.device}")
    with _no_function():
        plain = tensor.detach().resolve_conj().resolve_neg().cpu()
        place = storages.place(plain)
    return TensorNode(
        storage=place,
        dtype=dtype,
        shape=tuple(plain.shape),
        stride=tuple(plain.stride()),
        offset=int(plain.storage_offset()),
        requires_grad=tensor.requires_grad,
    )


def unpack(node: Node, leaf: Callable[[TensorNode], Tensor]) -> Value:
    """The value that ``node`` stands for; ``leaf`` makes its tensors."""
    if isinstance(node, TensorNode):
        return leaf(node)
    if isinstance(node, ListNode):
        return [unpack(item, leaf) for item in node.items]
    if isinstance(node, TupleNode):
        return tuple(unpack(item, leaf) for item in node.items)
    if isinstance(node, DictNode):
        return {key: unpack(item, leaf) for key, item in zip(node.keys, node.items, strict=True)}
    return node


def leaf_in(flats: Sequence[Tensor]) -> Callable[[TensorNode], Tensor]:
    """Makes the tensors of a frame in its own storages.

    Raises
    ------
    WireError
        When called: the frame has no such storage, or the tensor does not lie in it.
    """

    def leaf(node: TensorNode) -> Tensor:
        if not 0 <= node.storage < len(flats):
            raise WireError(what=f"a tensor in storage {node.storage} of {len(flats)}")
        tensor = view_of(flats[node.storage], node)
        return tensor.requires_grad_() if node.requires_grad else tensor

    return leaf


def tensor_nodes(node: Node) -> list[TensorNode]:
    """All tensors of ``node``, in order."""
    if isinstance(node, TensorNode):
        return [node]
    if isinstance(node, (ListNode, TupleNode, DictNode)):
        return [leaf for item in node.items for leaf in tensor_nodes(item)]
    return []
