"""An exported aten graph as canonical expressions: one spelling for what releases of transformers spell differently.

The step has one token and one sequence, so most of what a model does to shapes moves no element. An expression
therefore carries its shape without unit dimensions, and every op that keeps the order of elements (``view``,
``unsqueeze``, ``contiguous``, a ``transpose`` over a unit dimension ...) vanishes or becomes a ``view``. Casts to the
same type, additions of 0, multiplications by 1 and inactive dropout vanish too. Broadcasts become explicit ``expand``s,
so that the operands of an elementwise op have one shape. Equal expressions are one object. In-place updates become
values. An op that is not known stays, under its aten name, and no pattern will match it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from amk.frontend.errors import UnrecognisedOpError

if TYPE_CHECKING:
    from torch import fx
    from torch.export import ExportedProgram

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A decode step as expressions.

    Attributes
    ----------
    logits
        What the step returns.
    states
        Final value of every input that the step changes in place (the caches), by input name.
    parameters
        Full shape of each parameter, by the first of its names in the state dict (tied parameters have several).
    live
        Everything ``logits`` and ``states`` depend on, operands first.
    """

    logits: Expr
    states: dict[str, Expr]
    parameters: dict[str, Shape]
    live: tuple[Expr, ...]


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


def canonical_step(program: ExportedProgram) -> Step:
    """Read an exported decode step (see ``trace_decode_step``) as canonical expressions.

    Raises
    ------
    UnrecognisedOpError
        An op changes a tensor in place in a way that cannot be followed.
    """
    return _Reader(program).read()


class _Reader:
    """Walks the nodes of one program in order; ``value`` and ``full`` are what the rules of each op ask it."""

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        self.build = Builder()
        self.values: dict[fx.Node, Expr] = {}
        self.roots: dict[fx.Node, fx.Node] = {}
        self.parameters: dict[str, Shape] = {}

    def read(self) -> Step:
        leaves = self._leaves()
        states: dict[str, Expr] = {}
        result: fx.Node | None = None
        for node in self.program.graph.nodes:
            self.build.node = node
            if node.op == "placeholder":
                self._define(node, leaves[node.name])
            elif node.op == "output":
                (result,) = node.args[0]
            else:
                self._call(node, states)
        assert result is not None, "an exported program has an output"
        logits = self.value(result)
        return Step(
            logits=logits,
            states=states,
            parameters=self.parameters,
            live=tuple(_reachable([logits, *states.values()])),
        )

    def value(self, arg: Any) -> Expr:
        """The expression of an argument: a node's, or a constant's."""
        return self.build.const(arg) if isinstance(arg, bool | int | float) else self.values[arg]

    def full(self, arg: Any) -> Shape:
        """Shape of an argument with its unit dimensions; () for a number."""
        return () if isinstance(arg, bool | int | float) else node_shape(arg)

    def _leaves(self) -> dict[str, Expr]:
        """An expression for each placeholder. Tied parameters are one object in the state dict, and get one name."""
        first: dict[int, str] = {}
        for name, tensor in self.program.state_dict.items():
            first.setdefault(id(tensor), name)
        leaves = {}
        for spec in self.program.graph_signature.input_specs:
            kind, target = spec.kind.name.lower(), spec.target or spec.arg.name
            op = {"parameter": "param", "user_input": "input"}.get(kind, kind)
            tensor = self.program.state_dict.get(target)
            shape = tuple(tensor.shape) if tensor is not None else ()
            name = first.get(id(tensor), target).removeprefix("model.")
            if op == "param":
                self.parameters[name] = shape
            leaves[spec.arg.name] = self.build.make(op, attrs=(name,), shape=squeeze(shape))
        return leaves

    def _define(self, node: fx.Node, leaf: Expr) -> None:
        shape = squeeze(node_shape(node))
        self.values[node] = leaf if leaf.shape == shape else self.build.make(leaf.op, attrs=leaf.attrs, shape=shape)
        self.roots[node] = node

    def _call(self, node: fx.Node, states: dict[str, Expr]) -> None:
        from amk.frontend.rules import ALIASING, IGNORED, MUTATING, apply_rule, op_name

        name = op_name(node)
        if name in IGNORED:
            return
        mutable = bool(getattr(getattr(node.target, "_schema", None), "is_mutable", False))
        if mutable and name not in MUTATING:
            raise self._refusal(node)
        self.values[node] = apply_rule(self, node)
        source = node.args[0] if node.args else None
        aliases = name in ALIASING or mutable
        self.roots[node] = self.roots[source] if aliases and source in self.roots else node  # type: ignore[index]
        if mutable:
            self._mutate(node, states)

    def _mutate(self, node: fx.Node, states: dict[str, Expr]) -> None:
        """Give the changed tensor its new value; every other view of it is stale and must not be read again."""
        target = node.args[0]
        root = self.roots[node]
        if root.op != "placeholder" and not str(root.target).startswith("aten.clone"):
            raise self._refusal(node)
        for other, other_root in self.roots.items():
            if other_root is root and other not in (target, node):
                self.values[other] = self.build.make("stale view", attrs=(other.name,))
        self.values[target] = self.values[node]  # type: ignore[index]
        if root.op == "placeholder":
            states[root.name] = self.values[node]

    def _refusal(self, node: fx.Node) -> UnrecognisedOpError:
        return UnrecognisedOpError(op=f"{node.target} (in place)", module=module_path(node), tensor=node.name)


def node_shape(node: fx.Node) -> Shape:
    """Shape of the tensor a node makes, with unit dimensions; () for what is not one tensor."""
    return tuple(int(size) for size in getattr(node.meta.get("val"), "shape", ()))


def elements(shape: Shape) -> int:
    """Number of elements of ``shape``."""
    return math.prod(shape)


def _reachable(outputs: list[Expr]) -> Iterator[Expr]:
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
