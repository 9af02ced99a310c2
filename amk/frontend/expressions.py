"""Canonical expressions: what a decode step computes, one object for equal values, no unit dimension in any shape."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import fx

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Expr:
    """A value of the step. Equal only to itself; ``Builder.make`` gives one object to equal expressions.

    Attributes
    ----------
    op
        A canonical name (``mul``, ``view`` ...), a leaf (``param``, ``buffer``, ``input``, ``const``), or the full name
        of an aten op that has no rule.
    args, attrs
        Operands; everything else that determines the value.
    shape
        Sizes of the dimensions that are not 1.
    origin, module
        The aten op it came from and the dotted path of the module that ran it, for messages.
    """

    op: str
    args: tuple[Expr, ...] = ()
    attrs: tuple[Any, ...] = ()
    shape: Shape = ()
    origin: str = ""
    module: str = ""


@dataclass(slots=True)
class Builder:
    """Makes expressions, one object for equal ones, and applies the identities that need no aten node."""

    made: dict[tuple[Any, ...], Expr] = field(default_factory=dict)
    node: fx.Node | None = None

    def make(self, op: str, args: Iterable[Expr] = (), attrs: tuple[Any, ...] = (), shape: Shape = ()) -> Expr:
        operands = tuple(args)
        key = (op, tuple(map(id, operands)), attrs, shape)
        if key not in self.made:
            origin, module = (str(self.node.target), module_path(self.node)) if self.node is not None else ("", "")
            self.made[key] = Expr(op=op, args=operands, attrs=attrs, shape=shape, origin=origin, module=module)
        return self.made[key]

    def const(self, value: float | bool) -> Expr:  # noqa: FBT001  # a constant of the graph may be a boolean
        return self.make("const", attrs=(type(value).__name__, value))

    def view(self, x: Expr, shape: Shape) -> Expr:
        """The elements of ``x``, in order, as ``shape``."""
        base = flat(x)
        return base if base.shape == shape else self.make("view", (base,), shape=shape)

    def expand(self, x: Expr, full: Shape, target: Shape) -> Expr:
        """``x``, whose shape with unit dimensions is ``full``, broadcast to ``target``. A constant needs none."""
        if x.op == "const":
            return x
        aligned = (1,) * (len(target) - len(full)) + full
        added = tuple(size == 1 for size, wanted in zip(aligned, target, strict=True) if wanted != 1)
        return self.make("expand", (x,), added, squeeze(target)) if any(added) else x


def squeeze(shape: Iterable[int]) -> Shape:
    """``shape`` without its unit dimensions."""
    return tuple(int(size) for size in shape if size != 1)


def flat(x: Expr) -> Expr:
    """``x`` before it was reshaped; two expressions with one ``flat`` hold the same elements in the same order."""
    return x.args[0] if x.op == "view" else x


def module_path(node: fx.Node) -> str:
    """Dotted path of the module that ran ``node``, as in the model's own state dict."""
    stack = node.meta.get("nn_module_stack") or {}
    paths = [path for path, _ in stack.values()]
    return (paths[-1] if paths else "").removeprefix("model").removeprefix(".") or "the model"


def node_shape(node: fx.Node) -> Shape:
    """Shape of the tensor a node makes, with unit dimensions; () for what is not one tensor."""
    return tuple(int(size) for size in getattr(node.meta.get("val"), "shape", ()))


def elements(shape: Shape) -> int:
    """Number of elements of ``shape``."""
    return math.prod(shape)


def reachable(outputs: list[Expr]) -> Iterator[Expr]:
    """All that ``outputs`` depend on, operands first, without recursion (a trace is thousands of nodes deep)."""
    seen: set[Expr] = set()
    stack = [(output, False) for output in reversed(outputs)]
    while stack:
        expr, expanded = stack.pop()
        if expanded:
            yield expr
        elif expr not in seen:
            seen.add(expr)
            stack.append((expr, True))
            stack.extend((arg, False) for arg in reversed(expr.args))
