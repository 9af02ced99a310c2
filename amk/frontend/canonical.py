"""An exported aten graph as canonical expressions: one spelling for what releases of transformers spell differently.

The step has one token and one sequence, so most of what a model does to shapes moves no element. An expression
therefore carries its shape without unit dimensions, and every op that keeps the order of elements (``view``,
``unsqueeze``, ``contiguous``, a ``transpose`` over a unit dimension ...) vanishes or becomes a ``view``. Casts to the
same type, additions of 0, multiplications by 1 and inactive dropout vanish too. Broadcasts become explicit ``expand``s,
so that the operands of an elementwise op have one shape. Equal expressions are one object. In-place updates become
values. An op that is not known stays, under its aten name, and no pattern will match it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amk.frontend.errors import UnrecognisedOpError
from amk.frontend.expressions import Builder, Expr, Shape, module_path, node_shape, reachable, squeeze

if TYPE_CHECKING:
    from torch import fx
    from torch.export import ExportedProgram


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
            live=tuple(reachable([logits, *states.values()])),
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
            number = self._number(target) if op == "buffer" else None
            if number is not None:
                leaves[spec.arg.name] = self.build.const(number)
                continue
            name = first.get(id(tensor), target).removeprefix("model.")
            if op == "param":
                self.parameters[name] = shape
            leaves[spec.arg.name] = self.build.make(op, attrs=(name,), shape=squeeze(shape))
        return leaves

    def _number(self, buffer: str) -> float | None:
        """Value of a buffer that is one number; None for any other, and for one on the meta device."""
        held = self.program.state_dict.get(buffer, self.program.constants.get(buffer))
        return None if held is None or held.dim() or held.is_meta else float(held)

    def _define(self, node: fx.Node, leaf: Expr) -> None:
        shape = squeeze(node_shape(node))
        same = leaf.op == "const" or leaf.shape == shape
        self.values[node] = leaf if same else self.build.make(leaf.op, attrs=leaf.attrs, shape=shape)
        self.roots[node] = node

    def _call(self, node: fx.Node, states: dict[str, Expr]) -> None:
        from amk.frontend.rules import IGNORED, MUTATING, apply_rule
        from amk.frontend.shape_rules import ALIASING, op_name

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
