"""How each aten op becomes a canonical expression. One rule an op; an op without a rule keeps its own name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from amk.frontend.expressions import Expr, elements, node_shape, squeeze
from amk.frontend.shape_rules import SHAPING, Reader, concatenate, cut, dimension, expand, item, op_name, permute

if TYPE_CHECKING:
    from torch import fx


Rule = Callable[[Reader, "fx.Node"], Expr]

IGNORED = frozenset({"_assert_tensor_metadata"})
"""Checks of what the exporter already knows; they make no value."""

MUTATING = frozenset({"add_", "index_copy_"})
"""In-place ops with a rule; any other is refused."""

UNARY = frozenset(["cos", "neg", "rsqrt", "silu", "sin", "tanh"])
"""Elementwise ops without options."""

BINARY = frozenset(["ge", "gt", "le", "lt", "sub"])
"""Elementwise ops of two operands that need no identity."""


def apply_rule(reader: Reader, node: fx.Node) -> Expr:
    """The canonical expression of ``node``, whose operands already have theirs."""
    name = op_name(node)
    if name in SHAPING:
        return reader.build.view(reader.value(node.args[0]), squeeze(node_shape(node)))
    if name in UNARY:
        return reader.build.make(name, [reader.value(node.args[0])], shape=squeeze(node_shape(node)))
    if name in BINARY and not node.kwargs:
        return reader.build.make(name, _operands(reader, node), shape=squeeze(node_shape(node)))
    made = RULES[name](reader, node) if name in RULES else None
    return _unknown(reader, node) if made is None else made


def _unknown(reader: Reader, node: fx.Node) -> Expr:
    rest = tuple(str(arg) for arg in (*node.args, *node.kwargs.items()) if str(arg))
    inputs = [reader.value(source) for source in node.all_input_nodes]
    return reader.build.make(str(node.target), inputs, (*rest, node.name), squeeze(node_shape(node)))


def _operands(reader: Reader, node: fx.Node) -> list[Expr]:
    """The arguments of an elementwise op, each broadcast to the shape of the result."""
    target = node_shape(node)
    return [reader.build.expand(reader.value(arg), reader.full(arg), target) for arg in node.args]


def _dtype(arg: Any) -> Any:
    return getattr(arg.meta.get("val"), "dtype", None)


def _add(reader: Reader, node: fx.Node) -> Expr | None:
    if node.kwargs:
        return None
    a, b = _operands(reader, node)
    if a.op == "const":
        a, b = b, a
    if b.op == "const" and b.attrs[1] == 0 and _same_dtype(node):
        return a
    return reader.build.make("add", (a, b), shape=squeeze(node_shape(node)))


def _mul(reader: Reader, node: fx.Node) -> Expr:
    a, b = _operands(reader, node)
    if a.op == "const":
        a, b = b, a
    if b.op == "const" and b.attrs[1] == 1 and _same_dtype(node):
        return a
    shape = squeeze(node_shape(node))
    return reader.build.make("square", (a,), shape=shape) if a is b else reader.build.make("mul", (a, b), shape=shape)


def _div(reader: Reader, node: fx.Node) -> Expr | None:
    if node.kwargs:
        return None
    a, b = _operands(reader, node)
    if b.op == "const" and b.attrs[1] == 1 and _same_dtype(node):
        return a
    return reader.build.make("div", (a, b), shape=squeeze(node_shape(node)))


def _same_dtype(node: fx.Node) -> bool:
    return all(_dtype(source) == _dtype(node) for source in node.all_input_nodes)


def _pow(reader: Reader, node: fx.Node) -> Expr | None:
    if node.args[1] != 2:
        return None
    return reader.build.make("square", [reader.value(node.args[0])], shape=squeeze(node_shape(node)))


def _to(reader: Reader, node: fx.Node) -> Expr:
    x = reader.value(node.args[0])
    if _dtype(node.args[0]) == _dtype(node):
        return x
    return reader.build.make("cast", (x,), (str(_dtype(node)),), x.shape)


def _dropout(reader: Reader, node: fx.Node) -> Expr | None:
    _, probability, training = node.args
    return reader.value(node.args[0]) if probability == 0 or not training else None


def _linear(reader: Reader, node: fx.Node) -> Expr:
    return reader.build.make("linear", map(reader.value, filter(None, node.args)), shape=squeeze(node_shape(node)))


def _embedding(reader: Reader, node: fx.Node) -> Expr:
    # The further arguments (padding index, gradient options) do not change the value.
    return reader.build.make("embedding", map(reader.value, node.args[:2]), shape=squeeze(node_shape(node)))


def _mean(reader: Reader, node: fx.Node) -> Expr | None:
    if node.kwargs:
        return None
    full = reader.full(node.args[0])
    dims = tuple(dimension(full, dim) for dim in node.args[1])  # type: ignore[union-attr, arg-type]
    return reader.build.make("mean", [reader.value(node.args[0])], dims, squeeze(node_shape(node)))


def _softmax(reader: Reader, node: fx.Node) -> Expr | None:
    position = dimension(reader.full(node.args[0]), node.args[1])  # type: ignore[arg-type]
    if position is None or _dtype(node) != _dtype(node.args[0]):
        return None
    return reader.build.make("softmax", [reader.value(node.args[0])], (position,), squeeze(node_shape(node)))


def _matmul(reader: Reader, node: fx.Node) -> Expr | None:
    """A product over one element is elementwise; a batch of rows times matrices is ``vecmat`` (batch, inner, outer)."""
    x, y = (reader.full(arg) for arg in node.args)
    target = node_shape(node)
    if len(x) < 2 or len(y) < 2:
        return None
    if x[-1] == 1:
        return reader.build.make("mul", _operands(reader, node), shape=squeeze(target))
    if x[-2] != 1 or x[:-2] != y[:-2]:
        return None
    attrs = (elements(x[:-2]), x[-1], y[-1])
    return reader.build.make("vecmat", map(reader.value, node.args), attrs, squeeze(target))


def _where(reader: Reader, node: fx.Node) -> Expr:
    return reader.build.make("where", _operands(reader, node), shape=squeeze(node_shape(node)))


def _arange(reader: Reader, node: fx.Node) -> Expr | None:
    if not all(isinstance(arg, int) for arg in node.args) or len(node.args) != 1:
        return None
    (end,) = node.args
    return reader.build.const(0) if end == 1 else reader.build.make("arange", attrs=(end,), shape=(int(end),))  # type: ignore[arg-type]


def _filled(reader: Reader, node: fx.Node) -> Expr | None:
    value = {"zeros": 0.0, "ones": 1.0, "new_ones": 1.0}.get(op_name(node), node.args[-1])
    if str(_dtype(node)) == "torch.bool" and isinstance(value, int | float):
        value = bool(value)
    return reader.build.const(value) if isinstance(value, bool | int | float) else None


def _index_copy(reader: Reader, node: fx.Node) -> Expr | None:
    target, dim, index, source = node.args
    position = dimension(reader.full(target), dim)  # type: ignore[arg-type]
    if position is None:
        return None
    operands = (reader.value(target), reader.value(index), reader.value(source))
    return reader.build.make("index_copy", operands, (position,), squeeze(node_shape(node)))


def _and(reader: Reader, node: fx.Node) -> Expr | None:
    """Of truth values only: the same ops on integers work bit by bit."""
    if any(str(_dtype(source)) != "torch.bool" for source in node.all_input_nodes):
        return None
    kept = [x for x in _operands(reader, node) if x.op != "const" or not x.attrs[1]]
    if len(kept) == 1 and kept[0].shape == squeeze(node_shape(node)):
        return kept[0]
    return reader.build.make("and", kept, shape=squeeze(node_shape(node))) if len(kept) == 2 else None


def _gelu(reader: Reader, node: fx.Node) -> Expr:
    approximate = node.kwargs.get("approximate", "none")
    return reader.build.make("gelu", [reader.value(node.args[0])], (str(approximate),), squeeze(node_shape(node)))


def _layer_norm(reader: Reader, node: fx.Node) -> Expr | None:
    """Over the last dimension, with a gain; the flag that chooses a library does not change the value."""
    given: tuple[Any, ...] = node.args[:5]
    defaults: tuple[Any, ...] = (None, None, None, None, 1e-5)
    x, sizes, gain, bias, eps = given + defaults[len(given) :]
    if len(sizes) != 1 or sizes[0] == 1 or gain is None or node.kwargs:
        return None
    operands = [reader.value(arg) for arg in (x, gain, bias) if arg is not None]
    return reader.build.make("layer_norm", operands, (eps,), squeeze(node_shape(node)))


RULES: dict[str, Callable[[Reader, fx.Node], Expr | None]] = {
    "<built-in function getitem>": item,
    "__and__": _and,
    "_to_copy": _to,
    "add": _add,
    "add_": _add,
    "arange": _arange,
    "bitwise_and": _and,
    "cat": concatenate,
    "div": _div,
    "dropout": _dropout,
    "embedding": _embedding,
    "expand": expand,
    "full": _filled,
    "gelu": _gelu,
    "index_copy": _index_copy,
    "index_copy_": _index_copy,
    "layer_norm": _layer_norm,
    "linear": _linear,
    "logical_and": _and,
    "matmul": _matmul,
    "mean": _mean,
    "mul": _mul,
    "new_ones": _filled,
    "ones": _filled,
    "permute": permute,
    "pow": _pow,
    "scalar_tensor": _filled,
    "slice": cut,
    "softmax": _softmax,
    "to": _to,
    "transpose": permute,
    "type_as": _to,
    "where": _where,
    "zeros": _filled,
}
