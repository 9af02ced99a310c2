"""The judge's questions and answers as messages, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from amk.contracts.errors import WireError
from amk.contracts.harness.protocol import Call, OutputNode, Returned
from amk.contracts.outcomes import Answer, Ask, Output, Value
from amk.contracts.wire import Storages, TensorNode, TupleNode, leaf_in, pack, unpack


def dtype_name(dtype: torch.dtype | None) -> str | None:
    return None if dtype is None else str(dtype).removeprefix("torch.")


def tensor_node(tensor: Tensor, storages: Storages) -> TensorNode:
    node = pack(tensor, storages)
    assert isinstance(node, TensorNode)
    return node


def tuple_node(values: Sequence[Value], storages: Storages) -> TupleNode:
    node = pack(tuple(values), storages)
    assert isinstance(node, TupleNode)
    return node


def named_nodes(tensors: Mapping[str, Tensor], storages: Storages) -> dict[str, TensorNode]:
    return {name: tensor_node(tensor.detach(), storages) for name, tensor in tensors.items()}


def call_of(ask: Ask, storages: Storages) -> Call:
    """A request for the calls of ``ask``.

    Raises
    ------
    WireError
        Its inputs hold what cannot be sent.
    """
    cotangents: tuple[TensorNode | None, ...] | None = None
    if ask.cotangents is not None:
        cotangents = tuple(None if one is None else tensor_node(one, storages) for one in ask.cotangents)
    return Call(
        inputs=tuple_node(ask.inputs, storages),
        dtype=dtype_name(ask.dtype),
        cotangents=cotangents,
        repeat=ask.repeat,
        disturb=ask.disturb,
        poison=ask.poison,
        reuse=ask.reuse,
        state=None if ask.state is None else named_nodes(ask.state, storages),
        late=ask.late,
    )


def tuple_of(node: TupleNode, flats: Sequence[Tensor]) -> tuple[Value, ...]:
    """The values of a message.

    Raises
    ------
    WireError
        A tensor does not lie in what was sent.
    """
    values = unpack(node, leaf_in(flats))
    assert isinstance(values, tuple)
    return values


def named_tensors(nodes: Mapping[str, TensorNode], flats: Sequence[Tensor]) -> dict[str, Tensor]:
    """The tensors of a message by name; raises as ``tuple_of`` does."""
    leaf = leaf_in(flats)
    return {name: leaf(node) for name, node in nodes.items()}


def answer_of(reply: Returned, flats: Sequence[Tensor]) -> Answer:
    """What a reply says; raises as ``tuple_of`` does."""
    leaf = leaf_in(flats)
    return Answer(
        outputs=tuple(_output(node, leaf(node.value)) for node in reply.outputs),
        structure=reply.structure,
        digests=reply.digests,
        inputs_changed=reply.inputs_changed,
        state_changed=reply.state_changed,
        late_change=reply.late_change,
        threads=reply.threads,
        patched=reply.patched,
        input_gradients=tuple(None if node is None else leaf(node) for node in reply.input_gradients),
        state_gradients={name: None if node is None else leaf(node) for name, node in reply.state_gradients.items()},
        seconds=reply.seconds,
    )


def _output(node: OutputNode, value: Tensor) -> Output:
    if not value.is_contiguous():
        raise WireError(what="an output that is not contiguous")
    return Output(
        value=value.detach(),
        stride=node.stride,
        device=node.device,
        kind=node.kind,
        requires_grad=node.requires_grad,
        aliases=frozenset(node.aliases),
    )
