"""What matrices do, and what is done to rows between them."""

from __future__ import annotations

from amk.frontend.expressions import Expr, flat
from amk.frontend.patterns.match import Match, NoMatch, require
from amk.ir.activation import Activation
from amk.ir.graph import Add, AnyOp, Embed, GatedMul, Linear, Logits

ACTIVATIONS: dict[tuple[str, tuple[str, ...]], Activation] = {
    ("silu", ()): "silu",
    ("gelu", ("none",)): "gelu",
    ("gelu", ("tanh",)): "gelu_tanh",
}


def embed(m: Match, x: Expr) -> AnyOp:
    """table[ids]."""
    table, ids = m.take(x, "embedding")
    require(m.leaf(ids, "input") == "ids")
    return Embed(out="embedding", table=m.leaf(table, "param"))


def scaled_embed(m: Match, x: Expr) -> AnyOp:
    """table[ids] * scale."""
    inner, scale = m.scaled(x)
    rows = m.made_by(inner)
    if not isinstance(rows, Embed) or rows.scale != 1.0:
        raise NoMatch
    return Embed(out=f"{rows.out}.scaled", table=rows.table, scale=scale)


def linear(m: Match, x: Expr) -> AnyOp:
    """x @ weight^T, perhaps with a bias."""
    source, matrix, *rest = m.take(x, "linear")
    require(len(source.shape) == 1)
    weight = m.leaf(matrix, "param")
    bias = m.leaf(rest[0], "param") if rest else None
    return Linear(out=weight.removesuffix(".weight"), x=m.named(source), weight=weight, bias=bias)


def linear_rows(m: Match, x: Expr) -> AnyOp:
    """Some of the rows of x @ weight^T: several matrices that the checkpoint keeps as one."""
    (inner,) = m.take(x, "slice")
    whole = m.made_by(inner)
    if not isinstance(whole, Linear) or whole.rows is not None or whole.bias is not None:
        raise NoMatch
    axis, low, high = x.attrs
    require(axis == 0)
    return Linear(out=f"{whole.out}.{low}_{high}", x=whole.x, weight=whole.weight, rows=(low, high))


def gated_mul(m: Match, x: Expr) -> AnyOp:
    """activation(gate) * up."""
    activated, up = m.split(x, "mul", lambda e: (e.op, e.attrs) in ACTIVATIONS)
    (gate,) = m.take(activated, activated.op)
    name = m.named(gate)
    activation = ACTIVATIONS[activated.op, activated.attrs]
    return GatedMul(out=f"{name}.gated", gate=name, up=m.named(up), activation=activation)


def add(m: Match, x: Expr) -> AnyOp:
    """a + b, of two rows, one of them perhaps multiplied."""
    a, b = m.take(x, "add")
    require(len(x.shape) == 1 and a.shape == b.shape == x.shape)
    if not m.is_named(a):
        a, b = b, a
    first = m.named(a)
    scale = 1.0
    if not m.is_named(b):
        b, scale = m.scaled(b)
    second = m.named(b)
    return Add(out=f"{second}.residual", a=first, b=second, scale=scale)


def logits(m: Match, x: Expr) -> Logits:
    """cap((x @ weight^T + bias) * scale): what the step returns.

    A division by d is taken as the multiplication by 1/d: in float32 the two differ by at most two units in the last
    place, and both keep the order of logits but for what rounding makes equal.
    """
    inner, softcap = m.capped(flat(x))
    scale = 1.0
    if inner.op == "div":
        inner, divisor = m.take(inner, "div")
        figure = m.number(divisor)
        require(figure > 0)
        scale = 1.0 / figure
    else:
        inner, scale = m.scaled(inner)
    head = m.made_by(flat(inner))
    if not isinstance(head, Linear) or head.rows is not None:
        raise NoMatch
    return Logits(out="logits", x=head.x, weight=head.weight, bias=head.bias, scale=scale, softcap=softcap)
