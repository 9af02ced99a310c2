"""The plain Llama structure as one walk over a graph: what the passes are written for, and nothing else, passes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from amk.frontend.errors import UnsupportedStructureError
from amk.ir.graph import Add, AnyOp, Attention, Embed, Graph, Linear, Logits, RMSNorm, Rope, SiluMul

Kind = TypeVar("Kind", Embed, RMSNorm, Linear, Rope, Attention, Add, SiluMul, Logits)


class _Walk:
    """The ops of a graph by the value they define, each to be met once."""

    def __init__(self, graph: Graph) -> None:
        self.defined: dict[str, AnyOp] = {op.out: op for op in graph.ops}
        self.used: dict[str, int] = {}

    def op(self, value: str, kind: type[Kind], role: str) -> Kind:
        """The op that defines ``value``, which must be a ``kind``."""
        found = self.defined[value]
        self.used[value] = self.used.get(value, 0) + 1
        if not isinstance(found, kind):
            raise UnsupportedStructureError(expected=f"{role} to be a {kind.__name__}", found=describe(found))
        return found


def check_plain(graph: Graph) -> None:
    """Check that ``graph`` is, layer by layer, x + attention(norm(x)) and then x + mlp(norm(x)).

    Raises
    ------
    UnsupportedStructureError
        Names the first op that stands elsewhere.
    """
    walk = _Walk(graph)
    logits = walk.op("logits", Logits, "the last op")
    x = walk.op(logits.x, RMSNorm, "the input of the head").x
    for layer in reversed(range(graph.layers)):
        x = _layer(walk, x, layer)
    walk.op(x, Embed, "the input of the first layer")
    extra = [op for op in graph.ops if op.out not in walk.used]
    if extra:
        raise UnsupportedStructureError(expected="no further op", found=describe(extra[0]))


def _layer(walk: _Walk, out: str, layer: int) -> str:
    """Check one layer from its end; returns the value it starts from."""
    after = walk.op(out, Add, f"the end of layer {layer}")
    down = walk.op(after.b, Linear, f"the MLP of layer {layer}")
    gated = walk.op(down.x, SiluMul, f"the input of {down.weight}")
    gate = walk.op(gated.gate, Linear, f"the gate of layer {layer}")
    up = walk.op(gated.up, Linear, f"the other side of {gate.weight}")
    _same("the inputs of gate and up", gate.x, up.x)
    norm = walk.op(gate.x, RMSNorm, f"the input of {gate.weight}")
    _same(f"the input of {norm.gain} and the residual", norm.x, after.a)

    middle = walk.op(norm.x, Add, f"the middle of layer {layer}")
    output = walk.op(middle.b, Linear, f"the attention block of layer {layer}")
    attention = walk.op(output.x, Attention, f"the input of {output.weight}")
    _same("the cache and the layer it belongs to", str(attention.layer), str(layer))
    q_rope = walk.op(attention.q, Rope, f"the queries of layer {layer}")
    k_rope = walk.op(attention.k, Rope, f"the keys of layer {layer}")
    sources = [
        walk.op(value, Linear, f"a projection of layer {layer}").x for value in (q_rope.x, k_rope.x, attention.v)
    ]
    for source in sources[1:]:
        _same("the inputs of q, k and v", sources[0], source)
    norm = walk.op(sources[0], RMSNorm, f"the input of the projections of layer {layer}")
    _same(f"the input of {norm.gain} and the residual", norm.x, middle.a)
    return norm.x


def _same(what: str, first: str, second: str) -> None:
    if first != second:
        raise UnsupportedStructureError(expected=f"{what} to be one value", found=f"{first} and {second}")


def describe(op: AnyOp) -> str:
    """An op in words, with the tensor it reads if it reads one."""
    tensor: Iterator[str] = (str(getattr(op, name)) for name in ("weight", "gain", "table") if hasattr(op, name))
    return f"{type(op).__name__} {next(tensor, op.out)}"
