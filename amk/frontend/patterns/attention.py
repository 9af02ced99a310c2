"""Attention over a cache: its scores, its mask, and the rows it reads."""

from __future__ import annotations

from amk.frontend.expressions import Expr
from amk.frontend.patterns.match import Match, require
from amk.ir.graph import AnyOp, Attention

FLOAT32_MIN = -3.4028234663852886e38
"""An additive mask at or below this makes a softmax weight exactly 0."""


def attention(m: Match, x: Expr) -> AnyOp:
    """softmax(cap(q k^T * scale) + mask) v over the caches, after this token's k and v are written to them."""
    weights, values = m.take(x, "vecmat")
    (masked,) = m.take(weights, "softmax")
    require(weights.attrs == (len(weights.shape) - 1,))
    capped, mask = m.split(masked, "add", lambda e: e.op in ("mul", "vecmat"))
    scores, softcap = m.capped(capped)
    scores, scale = m.scaled(scores)
    q, turned = m.take(scores, "vecmat")
    (keys,) = m.take(turned, "permute")
    require(turned.attrs == ((0, 2, 1) if len(turned.shape) == 3 else (1, 0)))
    heads, head_dim, length = (int(size) for size in scores.attrs)
    require(x.attrs == (heads, length, head_dim))
    key_cache, k, key_heads = _cached(m, keys, (heads, length, head_dim))
    value_cache, v, value_heads = _cached(m, values, (heads, length, head_dim))
    layer = key_cache.removeprefix("keys_")
    require(key_cache == f"keys_{layer}" and value_cache == f"values_{layer}" and key_heads == value_heads)
    return Attention(
        out=f"attention.{layer}",
        q=m.named(q),
        k=m.named(k),
        v=m.named(v),
        layer=int(layer),
        heads=heads,
        kv_heads=key_heads,
        head_dim=head_dim,
        scale=scale,
        window=_window(m, mask, length),
        softcap=softcap,
    )


def _cached(m: Match, x: Expr, seen: tuple[int, int, int]) -> tuple[str, Expr, int]:
    """Cache, new row and head count of a cache just written at ``position``, each head repeated for its group."""
    heads, length, head_dim = seen
    groups = 1
    if x.op == "view":
        require(x.shape == seen)
        (x,) = m.take(x, "view")
    if x.op == "expand":
        repeated = x.attrs.index(True)
        require(x.attrs.count(True) == 1 and repeated == len(x.shape) - 3)
        groups = x.shape[repeated]
        (x,) = m.take(x, "expand")
    cache, position, row = m.take(x, "index_copy")
    require(x.attrs == (len(x.shape) - 2,) and m.leaf(position, "input") == "position")
    kv_heads = x.shape[0] if len(x.shape) == 3 else 1
    require(kv_heads * groups == heads and x.shape[-2:] == (length, head_dim))
    return m.leaf(cache, "input"), row, kv_heads


def _window(m: Match, mask: Expr, length: int) -> int | None:
    """The window of a mask that is exactly 0 at every row that is seen, and too low to matter at every other.

    Seen are the rows <= position, and of these, where there is a window, the rows > position - window.
    """
    mask = m.spread(mask, (True, False))
    condition, kept, hidden = m.take(mask, "where")
    require(m.number(kept) == 0.0 and m.number(hidden) <= FLOAT32_MIN)
    if condition.op != "and":
        _causal(m, condition, length)
        return None
    after, before = m.split(condition, "and", lambda e: e.op == "gt")
    _causal(m, before, length)
    row, bound = m.take(after, "gt")
    _rows(m, row, length)
    position, window = m.take(m.spread(bound, (True,)), "sub")
    require(m.leaf(position, "input") == "position" and window.op == "const" and window.attrs[0] == "int")
    size = int(m.number(window))
    require(size >= 1)
    return size


def _causal(m: Match, x: Expr, length: int) -> None:
    """Row <= position."""
    row, last = m.take(x, "le")
    _rows(m, row, length)
    require(m.leaf(m.spread(last, (True,)), "input") == "position")


def _rows(m: Match, x: Expr, length: int) -> None:
    """0, 1, 2 ... for each row of the cache."""
    m.take(x, "arange")
    require(x.attrs == (length,))
