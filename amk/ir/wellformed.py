"""A graph that hangs together: values defined once and before use, tensors named, every width what its reader needs."""

from __future__ import annotations

from amk.ir.errors import MalformedGraphError
from amk.ir.graph import (
    Add,
    AnyOp,
    Attention,
    Embed,
    GatedMul,
    Graph,
    HeadNorm,
    LayerNorm,
    Linear,
    Logits,
    RMSNorm,
    Rope,
)


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


Shapes = dict[str, tuple[int, ...]]


def _width(op: AnyOp, widths: dict[str, int], shapes: Shapes) -> int:
    """Columns of the value that ``op`` makes; its operands are checked on the way."""
    match op:
        case Embed(table=table):
            return shapes[table][1]
        case RMSNorm() | LayerNorm() | HeadNorm():
            return _norm_width(op, widths[op.x], shapes)
        case Linear() | Logits():
            return _linear_width(op, widths[op.x], shapes)
        case Rope(x=x, heads=heads, head_dim=head_dim, rotary_dim=rotary):
            _need(op, f"the width of {x!r}", widths[x], heads * head_dim)
            if rotary is not None and not (0 < rotary <= head_dim and rotary % 2 == 0):
                raise MalformedGraphError(op=_name(op), why=f"{rotary} elements of a head of {head_dim} cannot turn")
            return widths[x]
        case Attention(q=q, k=k, v=v, heads=heads, kv_heads=kv_heads, head_dim=head_dim):
            for value, count in ((q, heads), (k, kv_heads), (v, kv_heads)):
                _need(op, f"the width of {value!r}", widths[value], count * head_dim)
            return widths[q]
        case Add(a=first, b=second) | GatedMul(gate=first, up=second):
            _need(op, f"the width of {second!r}", widths[second], widths[first])
            return widths[first]


def _norm_width(op: RMSNorm | LayerNorm | HeadNorm, width: int, shapes: Shapes) -> int:
    wanted = width
    if isinstance(op, HeadNorm):
        _need(op, f"the width of {op.x!r}", width, op.heads * op.head_dim)
        wanted = op.head_dim if op.over == "head" else width
    bias = op.bias if isinstance(op, LayerNorm) else None
    for vector in (op.gain, bias):
        if vector is not None:
            _need(op, f"the shape of {vector}", shapes[vector], (wanted,))
    return width


def _linear_width(op: Linear | Logits, width: int, shapes: Shapes) -> int:
    rows, columns = shapes[op.weight]
    _need(op, f"the width of {op.weight}", columns, width)
    if op.bias is not None:
        _need(op, f"the shape of {op.bias}", shapes[op.bias], (rows,))
    low, high = (isinstance(op, Linear) and op.rows) or (0, rows)
    if not 0 <= low < high <= rows:
        raise MalformedGraphError(op=_name(op), why=f"{op.weight} has {rows} rows, not [{low}, {high})")
    return high - low


def _need(op: AnyOp, what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise MalformedGraphError(op=_name(op), why=f"{what} is {found}, not {wanted}")


def _name(op: AnyOp) -> str:
    return f"{type(op).__name__} {op.out!r}"
