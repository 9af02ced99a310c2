"""Norms of whole rows and of single heads."""

from __future__ import annotations

from amk.frontend.expressions import Expr
from amk.frontend.patterns.match import Match, require
from amk.ir.graph import AnyOp, HeadNorm, LayerNorm, RMSNorm

PER_HEAD = (True, False)
"""One value for all heads, broadcast over [heads, head_dim]."""


def rms_norm(m: Match, x: Expr) -> AnyOp:
    """Gain * (x * rsqrt(mean(x^2) + eps)), the mean over each row of the last dimension; gain or gain + 1."""
    gain, normed = m.split(x, "mul", _is_gain)
    source, scale = m.split(normed, "mul", m.is_named)
    dims = len(x.shape)
    require(1 <= dims <= 2 and source.shape == x.shape)
    (root,) = m.take(scale, "expand")
    (shifted,) = m.take(root, "rsqrt")
    mean, eps = m.split(shifted, "add", lambda e: e.op == "mean")
    (squared,) = m.take(mean, "mean")
    require(scale.attrs == ((True,) if dims == 1 else (False, True)) and mean.attrs == (dims - 1,))
    require(m.take(squared, "square") == (source,))
    name, plus_one = _gain(m, gain, x)
    value, figure, out = m.named(source), m.number(eps), name.removesuffix(".weight")
    if dims == 1:
        return RMSNorm(out=out, x=value, gain=name, eps=figure, plus_one=plus_one)
    heads, head_dim = x.shape
    return HeadNorm(out=out, x=value, gain=name, eps=figure, heads=heads, head_dim=head_dim, plus_one=plus_one)


def _is_gain(x: Expr) -> bool:
    """A parameter, perhaps with a constant added, perhaps broadcast over heads."""
    if x.op == "expand":
        (x,) = x.args
    if x.op == "add":
        x = x.args[0]
    return x.op == "param"


def _gain(m: Match, x: Expr, over: Expr) -> tuple[str, bool]:
    """The gain's parameter, and whether 1 is added to it. One vector serves every row of ``over``."""
    if len(over.shape) == 2:
        require(x.op == "expand")
        x = m.spread(x, PER_HEAD)
    require(x.shape == over.shape[-1:])
    if x.op == "param":
        return m.leaf(x, "param"), False
    gain, one = m.take(x, "add")
    require(m.number(one) == 1.0)
    return m.leaf(gain, "param"), True


def layer_norm(m: Match, x: Expr) -> AnyOp:
    """aten's layer norm of a row, with a gain and perhaps a bias."""
    source, gain, *rest = m.take(x, "layer_norm")
    require(len(x.shape) == 1 and source.shape == x.shape == gain.shape)
    name = m.leaf(gain, "param")
    bias = m.leaf(rest[0], "param") if rest else None
    (eps,) = x.attrs
    return LayerNorm(out=name.removesuffix(".weight"), x=m.named(source), gain=name, eps=float(eps), bias=bias)
