"""What a kernel returned: its tensors, how they are nested, and what they share memory with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from amk.contracts.harness.bits import bytes_of, copied, overlap, same_bits
from amk.contracts.wire import DEPTH_MAX, memory_of

TEXT_MAX: Final = 1000

_tensor, _empty, _as_plain = torch.tensor, torch.empty, torch.Tensor.as_subclass
_no_function = torch._C.DisableTorchFunctionSubclass  # noqa: SLF001 - torch has no public name for it


@dataclass(frozen=True, slots=True)
class Leaf:
    """A tensor that came back, alive; and what it was then: a copy of its elements, and how they were laid out.

    Attributes
    ----------
    value
        Empty where there are no elements that could be read.
    kind
        The name of its class.
    """

    tensor: Tensor
    value: Tensor
    kind: str
    stride: tuple[int, ...]
    device: str
    requires_grad: bool

    def has_changed(self) -> bool:
        """Whether it holds something else now."""
        return not same_bits(_elements(self.tensor), self.value)


def taken(result: object) -> tuple[tuple[Leaf, ...], str]:
    """(the tensors in what a kernel returned, its structure). A float counts as a tensor, of no dimension, float64."""
    leaves: list[Leaf] = []
    structure = _describe(result, leaves, 0)
    return tuple(leaves), structure


def _describe(value: object, leaves: list[Leaf], depth: int) -> str:
    if depth > DEPTH_MAX:
        raise RecursionError(f"outputs are nested more than {DEPTH_MAX} deep")
    if isinstance(value, Tensor):
        leaves.append(_leaf(value))
        return "tensor"
    if type(value) is float:
        leaves.append(replace(_leaf(_tensor(value, dtype=torch.float64, device="cpu")), kind="float"))
        return "float"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(_describe(item, leaves, depth + 1) for item in value)
        name = "" if type(value) in {list, tuple} else type(value).__name__
        return f"{name}[{inner}]" if isinstance(value, list) else f"{name}({inner})"
    if isinstance(value, Mapping):
        name = "" if type(value) is dict else type(value).__name__
        return f"{name}{{{', '.join(f'{key}: {_describe(item, leaves, depth + 1)}' for key, item in value.items())}}}"
    if value is None or type(value) in {int, bool, str}:
        return repr(value)[:TEXT_MAX]
    return type(value).__name__


def _leaf(tensor: Tensor) -> Leaf:
    with _no_function():  # a subclass may say anything of itself
        return Leaf(
            tensor=tensor,
            value=_elements(tensor),
            kind=_kind(tensor),
            stride=tuple(tensor.stride()) if tensor.layout is torch.strided else (),
            device=str(tensor.device),
            requires_grad=tensor.requires_grad,
        )


def _elements(tensor: Tensor) -> Tensor:
    """A plain copy on the CPU."""
    value = copied(tensor)
    if type(value) is Tensor:
        return value
    try:
        plain = _as_plain(value, Tensor)
        memory_of(bytes_of(plain))
    except (RuntimeError, NotImplementedError, TypeError):  # a subclass without memory of its own
        return _empty(0, dtype=value.dtype, device="cpu")
    return plain


def _kind(tensor: Tensor) -> str:
    layout = "" if tensor.layout is torch.strided else f" {str(tensor.layout).removeprefix('torch.')}"
    return f"{type(tensor).__name__}{layout}"


def aliases_of(leaves: Sequence[Leaf], others: Mapping[str, Tensor]) -> tuple[tuple[str, ...], ...]:
    """For each leaf what it shares memory with: labels of ``others``, and ``output 1``."""
    with _no_function():
        return _aliases_of(leaves, others)


def _aliases_of(leaves: Sequence[Leaf], others: Mapping[str, Tensor]) -> tuple[tuple[str, ...], ...]:
    named = {**others, **{f"output {at}": leaf.tensor for at, leaf in enumerate(leaves)}}
    return tuple(
        tuple(
            name
            for name, other in named.items()
            if (other is not leaf.tensor and name != f"output {at}" and _share(leaf.tensor, other))
            or (other is leaf.tensor and name != f"output {at}")
        )
        for at, leaf in enumerate(leaves)
    )


def _share(one: Tensor, other: Tensor) -> bool:
    if one.layout is not torch.strided or other.layout is not torch.strided:
        return False
    try:
        return overlap(one, other)
    except (RuntimeError, NotImplementedError):  # a subclass without memory of its own
        return False
