"""A graph that hangs together: values defined once and before use, tensors named, every width what its reader needs."""

from __future__ import annotations

from amk.ir.errors import MalformedGraphError
from amk.ir.graph import Add, AnyOp, Attention, Embed, Graph, Linear, Logits, RMSNorm, Rope, SiluMul


def check_graph(graph: Graph) -> None:
    """Walk the ops in order.

    Raises
    ------
    MalformedGraphError
        Names the op and what is wrong with it.
    """
    if not graph.ops:
        raise MalformedGraphError(op="the graph", why="it has no ops")
    shapes = {tensor.name: tensor.shape for tensor in graph.tensors}
    widths: dict[str, int] = {}
    for op in graph.ops:
        try:
            made = _width(op, widths, shapes)
        except KeyError as error:
            raise MalformedGraphError(op=_name(op), why=f"{error.args[0]!r} is not defined before it") from error
        if op.out in widths:
            raise MalformedGraphError(op=_name(op), why="its value is defined already")
        widths[op.out] = made


def _width(op: AnyOp, widths: dict[str, int], shapes: dict[str, tuple[int, ...]]) -> int:
    """Columns of the value that ``op`` makes; its operands are checked on the way."""

    def need(what: str, found: object, wanted: object) -> None:
        if found != wanted:
            raise MalformedGraphError(op=_name(op), why=f"{what} is {found}, not {wanted}")

    match op:
        case Embed(table=table):
            return shapes[table][1]
        case RMSNorm(x=x, gain=gain):
            need(f"the shape of {gain}", shapes[gain], (widths[x],))
            return widths[x]
        case Linear(x=x, weight=weight) | Logits(x=x, weight=weight):
            rows, columns = shapes[weight]
            need(f"the width of {weight}", columns, widths[x])
            return rows
        case Rope(x=x, heads=heads, head_dim=head_dim):
            need(f"the width of {x!r}", widths[x], heads * head_dim)
            return widths[x]
        case Attention(q=q, k=k, v=v, heads=heads, kv_heads=kv_heads, head_dim=head_dim):
            for value, count in ((q, heads), (k, kv_heads), (v, kv_heads)):
                need(f"the width of {value!r}", widths[value], count * head_dim)
            return widths[q]
        case Add(a=first, b=second) | SiluMul(gate=first, up=second):
            need(f"the width of {second!r}", widths[second], widths[first])
            return widths[first]


def _name(op: AnyOp) -> str:
    return f"{type(op).__name__} {op.out!r}"
