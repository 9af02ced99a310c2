"""Rules of the ops that move elements and compute nothing: what is left of them once unit dimensions are gone."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol

from amk.frontend.expressions import Builder, Expr, Shape, node_shape, squeeze

if TYPE_CHECKING:
    from torch import fx


class Reader(Protocol):
    """What a rule may ask of the walk over the program."""

    build: Builder

    def value(self, arg: Any) -> Expr: ...
    def full(self, arg: Any) -> Shape: ...


ALIASING = frozenset(
    [
        "<built-in function getitem>",
        "alias",
        "contiguous",
        "detach",
        "dropout",
        "expand",
        "flatten",
        "permute",
        "reshape",
        "select",
        "slice",
        "split",
        "chunk",
        "squeeze",
        "t",
        "to",
        "transpose",
        "type_as",
        "unsqueeze",
        "view",
        "_unsafe_view",
    ]
)
"""Ops whose result may share memory with their first argument."""

SHAPING = frozenset(
    ["alias", "clone", "contiguous", "detach", "flatten", "reshape", "squeeze", "unsqueeze", "view", "_unsafe_view"]
)
"""Ops that keep every element and the order of elements."""


def op_name(node: fx.Node) -> str:
    """``add`` for aten.add.Tensor; the full name for what is not an aten op."""
    full = str(node.target)
    return full.split(".")[1] if full.startswith("aten.") else full


def dimension(full: Shape, dim: int) -> int | None:
    """Where dimension ``dim`` of ``full`` is once unit dimensions are gone; None if it is one of them."""
    position = dim % len(full)
    return None if full[position] == 1 else len(squeeze(full[:position]))


def expand(reader: Reader, node: fx.Node) -> Expr:
    return reader.build.expand(reader.value(node.args[0]), reader.full(node.args[0]), node_shape(node))


def permute(reader: Reader, node: fx.Node) -> Expr:
    x, full = reader.value(node.args[0]), reader.full(node.args[0])
    order = list(range(len(full)))
    if op_name(node) == "permute":
        order = [int(dim) % len(full) for dim in node.args[1]]  # type: ignore[union-attr, arg-type]
    else:
        first, second = (int(dim) % len(full) for dim in node.args[1:])  # type: ignore[arg-type]
        order[first], order[second] = second, first
    moved = tuple(dimension(full, dim) for dim in order if full[dim] != 1)
    if moved == tuple(sorted(moved)):  # type: ignore[type-var]
        return x
    return reader.build.make("permute", (x,), moved, squeeze(node_shape(node)))


def cut(reader: Reader, node: fx.Node) -> Expr | None:
    x, full = reader.value(node.args[0]), reader.full(node.args[0])
    given: tuple[Any, ...] = node.args[1:]
    defaults: tuple[Any, ...] = (0, None, None, 1)
    dim, start, end, step = given + defaults[len(given) :]
    if node_shape(node) == full:
        return x
    position = dimension(full, dim)
    if position is None or step != 1:
        return None
    size = full[dim % len(full)]
    low, high, _ = slice(start, None if end == sys.maxsize else end).indices(size)
    return reader.build.make("slice", (x,), (position, low, high), squeeze(node_shape(node)))


def concatenate(reader: Reader, node: fx.Node) -> Expr | None:
    given: Any = node.args[0]
    dim = node.args[1] if len(node.args) > 1 else 0
    parts = [part for part in given if 0 not in node_shape(part)]
    if len(parts) == 1:
        return reader.value(parts[0])
    positions = {dimension(reader.full(part), dim) for part in parts}  # type: ignore[arg-type]
    if len(positions) != 1 or None in positions:
        return None
    return reader.build.make("cat", map(reader.value, parts), tuple(positions), squeeze(node_shape(node)))


def item(reader: Reader, node: fx.Node) -> Expr | None:
    """One piece of a tensor that was cut along one dimension: a slice of it."""
    source: Any = node.args[0]
    if op_name(source) not in ("chunk", "split", "split_with_sizes"):
        return None
    x, full = reader.value(source.args[0]), reader.full(source.args[0])
    dim = source.args[2] if len(source.args) > 2 else source.kwargs.get("dim", 0)
    position = dimension(full, dim)
    if position is None:
        return None
    sizes = [int(piece.shape[dim]) for piece in source.meta["val"]]
    index: Any = node.args[1]
    low = sum(sizes[:index])
    if len(sizes) == 1:
        return x
    return reader.build.make("slice", (x,), (position, low, low + sizes[index]), squeeze(node_shape(node)))
