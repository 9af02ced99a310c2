"""One attempt at one pattern: what it may ask of an expression, and what it has looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from amk.frontend.expressions import Expr, flat
from amk.ir.graph import AnyOp


class NoMatch(Exception):  # noqa: N818  # an outcome, not a failure
    """The expression is not an instance of the pattern."""


def require(condition: bool) -> None:  # noqa: FBT001  # reads as a sentence
    """Go on only if ``condition`` holds."""
    if not condition:
        raise NoMatch


@dataclass(slots=True)
class Match:
    """One attempt at one pattern.

    Attributes
    ----------
    names
        Name of each value that has one, by its flat expression.
    ops
        The op that makes each named value.
    parts
        Expressions that the pattern accounts for.
    tables
        The (inverse frequencies, scale) that the rotary factors seen so far are made of, in order of appearance.
    """

    names: dict[Expr, str]
    ops: dict[str, AnyOp]
    parts: list[Expr] = field(default_factory=list)
    tables: tuple[tuple[str, float], ...] = ()

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

    def scaled(self, x: Expr) -> tuple[Expr, float]:
        """What ``x`` is a constant multiple of, and the constant; ``x`` itself and 1 if it is none."""
        if x.op != "mul" or x.args[1].op != "const":
            return x, 1.0
        inner, factor = self.take(x, "mul")
        return inner, self.number(factor)

    def capped(self, x: Expr) -> tuple[Expr, float | None]:
        """The y of cap * tanh(y / cap), and the cap; ``x`` itself and None if it is not of that form."""
        if x.op != "mul" or x.args[0].op != "tanh":
            return x, None
        bounded, cap = self.take(x, "mul")
        (ratio,) = self.take(bounded, "tanh")
        inner, divisor = self.take(ratio, "div")
        value = self.number(cap)
        require(value > 0 and value == self.number(divisor))
        return inner, value

    def spread(self, x: Expr, added: tuple[bool, ...]) -> Expr:
        """``x`` before it was broadcast, if it was, over just the dimensions that ``added`` says."""
        if x.op != "expand":
            return x
        require(x.attrs == added)
        (inner,) = self.take(x, "expand")
        return inner

    def named(self, x: Expr) -> str:
        """Name of the value whose elements ``x`` holds, in whatever shape."""
        require(flat(x) in self.names)
        self.parts.append(x)
        return self.names[flat(x)]

    def is_named(self, x: Expr) -> bool:
        return flat(x) in self.names

    def made_by(self, x: Expr) -> AnyOp:
        """The op that makes the value that ``x`` is, in its own shape."""
        require(x in self.names)
        self.parts.append(x)
        return self.ops[self.names[x]]

    def table(self, buffer: str, scale: float) -> int:
        """Number of the rotary table of these inverse frequencies; one buffer has one scale."""
        wanted = (buffer, scale)
        if wanted not in self.tables:
            require(all(known != buffer for known, _ in self.tables))
            self.tables = (*self.tables, wanted)
        return self.tables.index(wanted)
