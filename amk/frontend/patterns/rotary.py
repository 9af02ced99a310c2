"""Rotary positions: the pairing of elements, the elements that turn, and what the factors are made of."""

from __future__ import annotations

from collections.abc import Callable

from amk.frontend.expressions import Expr
from amk.frontend.patterns.match import Match, require
from amk.ir.graph import AnyOp, Rope

INVERSE_FREQUENCIES = "inv_freq"


def rope(m: Match, x: Expr) -> AnyOp:
    """Each head turned as a whole."""
    source, table = _turned(m, x, m.is_named)
    return _rope(m, source, source.shape[-1], table)


def partial_rope(m: Match, x: Expr) -> AnyOp:
    """The first elements of each head turned, the others as they were."""
    turned, kept = m.take(x, "cat")
    (source,) = m.take(kept, "slice")
    last, head_dim, rotary_dim = len(source.shape) - 1, source.shape[-1], turned.shape[-1]
    require(x.attrs == (last,) and kept.attrs == (last, rotary_dim, head_dim))
    first = (last, 0, rotary_dim)
    cut, table = _turned(m, turned, lambda e: e.op == "slice" and e.args == (source,) and e.attrs == first)
    m.take(cut, "slice")
    return _rope(m, source, rotary_dim, table)


def _rope(m: Match, source: Expr, rotary_dim: int, table: int) -> Rope:
    require(1 <= len(source.shape) <= 2)
    heads, head_dim = source.shape if len(source.shape) == 2 else (1, source.shape[0])
    name = m.named(source)
    return Rope(
        out=f"{name}.rope",
        x=name,
        heads=heads,
        head_dim=head_dim,
        rotary_dim=None if rotary_dim == head_dim else rotary_dim,
        table=table,
    )


def _turned(m: Match, x: Expr, is_source: Callable[[Expr], bool]) -> tuple[Expr, int]:
    """The source and the table by which ``x`` is source * cos + cat(-source[half:], source[:half]) * sin."""
    plain, crossed = m.split(x, "add", lambda e: e.op == "mul" and any(map(is_source, e.args)))
    source, cos = m.split(plain, "mul", is_source)
    rotated, sin = m.split(crossed, "mul", lambda e: e.op == "cat")
    high, low = m.take(rotated, "cat")
    (negated,) = m.take(high, "neg")
    last, size = len(source.shape) - 1, source.shape[-1]
    require(rotated.attrs == (last,) and last <= 1 and size % 2 == 0)
    half = size // 2
    require(m.take(negated, "slice") == (source,) and negated.attrs == (last, half, size))
    require(m.take(low, "slice") == (source,) and low.attrs == (last, 0, half))
    made_of = _factor(m, cos, "cos", size)
    require(made_of == _factor(m, sin, "sin", size))
    return source, m.table(*made_of)


def _factor(m: Match, x: Expr, function: str, size: int) -> tuple[str, float]:
    """The buffer and the scale of ``scale * function(cat(a, a))``, a = position * inverse frequencies."""
    x, scale = m.scaled(m.spread(x, (True, False)))
    (angles,) = m.take(x, function)
    first, second = m.take(angles, "cat")
    require(first is second and angles.attrs == (0,) and angles.shape == (size,))
    frequencies, position = m.split(first, "mul", lambda e: e.op == "buffer")
    cast = m.spread(position, (True,))
    (counted,) = m.take(cast, "cast")
    require(cast.attrs == ("torch.float32",) and m.leaf(counted, "input") == "position")
    buffer = m.leaf(frequencies, "buffer")
    require(layer_type_of(buffer) is not None and frequencies.shape == (size // 2,))
    return buffer, scale


def layer_type_of(buffer: str) -> str | None:
    """The kind of layers that a buffer of inverse frequencies is for: "" if it is for all, None if it is no such."""
    module, _, name = buffer.rpartition(".")
    if not module.endswith("rotary_emb") or not name.endswith(INVERSE_FREQUENCIES):
        return None
    return name.removesuffix(INVERSE_FREQUENCIES).removesuffix("_")
