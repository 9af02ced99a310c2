"""The ops of the model graph as patterns over canonical expressions.

A pattern looks down from one expression to values that already have a name, and checks everything in between: which
constant, which dimension, which operand. What it looked at it lists in ``parts``; whatever no pattern lists in the end
makes the model refused. ``NoMatch`` says only that this pattern is not it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from amk.frontend.canonical import Expr, flat
from amk.ir.graph import Add, AnyOp, Attention, Embed, Linear, RMSNorm, Rope, SiluMul

FLOAT32_MIN = -3.4028234663852886e38
"""An additive mask at or below this makes a softmax weight exactly 0."""


class NoMatch(Exception):  # noqa: N818  # an outcome, not a failure
    """The expression is not an instance of the pattern."""


@dataclass(slots=True)
class Match:
    """One attempt at one pattern: the names so far, and the expressions looked at.

    Attributes
    ----------
    names
        Name of each value that has one, by its flat expression.
    parts
        Expressions that the pattern accounts for.
    rotary
        The (inverse frequencies, scale) that the rotary factors seen so far are made of.
    """

    names: dict[Expr, str]
    parts: list[Expr] = field(default_factory=list)
    rotary: set[tuple[str, float]] = field(default_factory=set)

    def take(self, x: Expr, op: str) -> tuple[Expr, ...]:
        """The operands of ``x``, which must be an ``op``."""
        require(x.op == op)
        self.parts.append(x)
        return x.args

    def split(self, x: Expr, op: str, first: Callable[[Expr], bool]) -> tuple[Expr, Expr]:
        """The two operands of a commutative ``op``, the one that is ``first`` first."""
        a, b = self.take(x, op)
        if not first(a):
            a, b = b, a
        require(first(a))
        return a, b

    def leaf(self, x: Expr, op: str) -> str:
        """Name of a leaf: a parameter, a buffer or an input."""
        self.take(x, op)
        return str(x.attrs[0])

    def number(self, x: Expr) -> float:
        """Value of a constant."""
        self.take(x, "const")
        return float(x.attrs[1])

    def named(self, x: Expr) -> str:
        """Name of the value whose elements ``x`` holds, in whatever shape."""
        require(flat(x) in self.names)
        self.parts.append(x)
        return self.names[flat(x)]

    def is_named(self, x: Expr) -> bool:
        return flat(x) in self.names


def require(condition: bool) -> None:  # noqa: FBT001  # reads as a sentence
    """Go on only if ``condition`` holds."""
    if not condition:
        raise NoMatch


def embed(m: Match, x: Expr) -> AnyOp:
    """table[ids]."""
    table, ids = m.take(x, "embedding")
    require(m.leaf(ids, "input") == "ids")
    return Embed(out="embedding", table=m.leaf(table, "param"))


def linear(m: Match, x: Expr) -> AnyOp:
    """x @ weight^T, without a bias."""
    operands = m.take(x, "linear")
    require(len(operands) == 2 and len(operands[0].shape) == 1)
    weight = m.leaf(operands[1], "param")
    return Linear(out=weight.removesuffix(".weight"), x=m.named(operands[0]), weight=weight)


def rms_norm(m: Match, x: Expr) -> AnyOp:
    """Gain * (x * rsqrt(mean(x^2) + eps)), the mean over the whole row."""
    gain, normed = m.split(x, "mul", lambda e: e.op == "param")
    require(len(x.shape) == 1 and gain.shape == x.shape)
    source, scale = m.split(normed, "mul", m.is_named)
    (root,) = m.take(scale, "expand")
    (shifted,) = m.take(root, "rsqrt")
    mean, eps = m.split(shifted, "add", lambda e: e.op == "mean")
    (squared,) = m.take(mean, "mean")
    require(mean.attrs == (0,) and m.take(squared, "square") == (source,) and source.shape == x.shape)
    name = m.leaf(gain, "param")
    return RMSNorm(out=name.removesuffix(".weight"), x=m.named(source), gain=name, eps=m.number(eps))


def rope(m: Match, x: Expr) -> AnyOp:
    """x * cos + cat(-x[half:], x[:half]) * sin on each head; the factors are functions of the position alone."""
    plain, crossed = m.split(x, "add", lambda e: e.op == "mul" and any(map(m.is_named, e.args)))
    source, cos = m.split(plain, "mul", m.is_named)
    rotated, sin = m.split(crossed, "mul", lambda e: e.op == "cat")
    high, low = m.take(rotated, "cat")
    (negated,) = m.take(high, "neg")
    last, head_dim = len(source.shape) - 1, source.shape[-1]
    require(rotated.attrs == (last,) and last <= 1 and head_dim % 2 == 0)
    half = head_dim // 2
    require(m.take(negated, "slice") == (source,) and negated.attrs == (last, half, head_dim))
    require(m.take(low, "slice") == (source,) and low.attrs == (last, 0, half))
    m.rotary.add(_rotary_factor(m, cos, "cos", head_dim))
    m.rotary.add(_rotary_factor(m, sin, "sin", head_dim))
    require(len(m.rotary) == 1)
    heads = source.shape[0] if last else 1
    name = m.named(source)
    return Rope(out=f"{name}.rope", x=name, heads=heads, head_dim=head_dim)


def _rotary_factor(m: Match, x: Expr, function: str, head_dim: int) -> tuple[str, float]:
    """The buffer and the scale of ``scale * function(cat(a, a))``, a = position * inverse frequencies."""
    if x.op == "expand":
        require(x.attrs == (True, False))
        (x,) = m.take(x, "expand")
    scale = 1.0
    if x.op == "mul":
        x, factor = m.split(x, "mul", lambda e: e.op == function)
        scale = m.number(factor)
    (angles,) = m.take(x, function)
    first, second = m.take(angles, "cat")
    require(first is second and angles.attrs == (0,) and angles.shape == (head_dim,))
    frequencies, position = m.split(first, "mul", lambda e: e.op == "buffer")
    (cast,) = m.take(position, "expand")
    (counted,) = m.take(cast, "cast")
    require(cast.attrs == ("torch.float32",) and m.leaf(counted, "input") == "position")
    buffer = m.leaf(frequencies, "buffer")
    require(buffer.endswith("rotary_emb.inv_freq") and frequencies.shape == (head_dim // 2,))
    return buffer, scale


def attention(m: Match, x: Expr) -> AnyOp:
    """softmax(q k^T * scale + causal mask) v over the caches, after this token's k and v are written to them."""
    weights, values = m.take(x, "vecmat")
    (masked,) = m.take(weights, "softmax")
    require(weights.attrs == (len(weights.shape) - 1,))
    scores, mask = m.split(masked, "add", lambda e: e.op in ("mul", "vecmat"))
    scale = 1.0
    if scores.op == "mul":
        scores, factor = m.split(scores, "mul", lambda e: e.op == "vecmat")
        scale = m.number(factor)
    q, turned = m.take(scores, "vecmat")
    (keys,) = m.take(turned, "permute")
    require(turned.attrs == ((0, 2, 1) if len(turned.shape) == 3 else (1, 0)))
    heads, head_dim, length = (int(size) for size in scores.attrs)
    require(x.attrs == (heads, length, head_dim))
    key_cache, k, key_heads = _cached(m, keys, (heads, length, head_dim))
    value_cache, v, value_heads = _cached(m, values, (heads, length, head_dim))
    layer = key_cache.removeprefix("keys_")
    require(key_cache == f"keys_{layer}" and value_cache == f"values_{layer}" and key_heads == value_heads)
    _causal(m, mask, length)
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


def _causal(m: Match, x: Expr, length: int) -> None:
    """Exactly 0 at every cache row <= position, and too low to matter at every other."""
    if x.op == "expand":
        require(x.attrs == (True, False))
        (x,) = m.take(x, "expand")
    condition, kept, hidden = m.take(x, "where")
    row, last = m.take(condition, "le")
    require(m.number(kept) == 0.0 and m.number(hidden) <= FLOAT32_MIN)
    m.take(row, "arange")
    require(row.attrs == (length,))
    (position,) = m.take(last, "expand")
    require(m.leaf(position, "input") == "position")


def silu_mul(m: Match, x: Expr) -> AnyOp:
    """silu(gate) * up."""
    activated, up = m.split(x, "mul", lambda e: e.op == "silu")
    (gate,) = m.take(activated, "silu")
    name = m.named(gate)
    return SiluMul(out=f"{name}.silu_mul", gate=name, up=m.named(up))


def add(m: Match, x: Expr) -> AnyOp:
    """a + b, of two rows."""
    a, b = m.take(x, "add")
    require(len(x.shape) == 1 and a.shape == b.shape == x.shape)
    first, second = m.named(a), m.named(b)
    return Add(out=f"{second}.residual", a=first, b=second)


PATTERNS: dict[str, tuple[Callable[[Match, Expr], AnyOp], ...]] = {
    "add": (add, rope),
    "embedding": (embed,),
    "linear": (linear,),
    "mul": (rms_norm, silu_mul),
    "vecmat": (attention,),
}
"""Patterns to try, by the op at the top."""
