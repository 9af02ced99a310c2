"""A canonical decode step as ops of the model graph, every expression of it accounted for or refused by name."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from amk.frontend.canonical import Step
from amk.frontend.errors import UnrecognisedOpError, UnsupportedStructureError
from amk.frontend.expressions import Expr, flat
from amk.frontend.patterns import PATTERNS
from amk.frontend.patterns.match import Match, NoMatch
from amk.frontend.patterns.projections import logits
from amk.ir.graph import AnyOp, Attention, HeadNorm, RMSNorm, Rope

OPERANDS = ("x", "q", "k", "v", "a", "b", "gate", "up")
"""Fields of an op that name values."""

TENSORS = ("weight", "gain", "table", "bias")
"""Fields of an op that name tensors of the checkpoint; a Rope's table is a number and is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """The ops of a step, in order, and what its rotary tables are made of: (inverse frequencies, scale)."""

    ops: tuple[AnyOp, ...]
    tables: tuple[tuple[str, float], ...]


def recognise(step: Step) -> Recognised:
    """The ops that compute ``step``.

    Every live expression must be part of an op; the caches must end as the attention ops leave them.

    Raises
    ------
    UnrecognisedOpError, UnsupportedStructureError
    """
    names: dict[Expr, str] = {}
    ops: dict[str, AnyOp] = {}
    parts: set[Expr] = set()
    tables: tuple[tuple[str, float], ...] = ()
    for expr in step.live:
        found = _match(expr, Match(names=names, ops=ops, tables=tables))
        if found is None:
            continue
        match, op = found
        if op.out in ops:
            raise UnsupportedStructureError(expected="each weight to be read once", found=f"{op.out} computed twice")
        names[expr], ops[op.out] = op.out, op
        tables = match.tables
        parts.update((expr, *match.parts))
    last = Match(names=names, ops=ops)
    try:
        ops["logits"] = logits(last, step.logits)
        parts.update((step.logits, *last.parts))
    except NoMatch:
        pass
    left = [expr for expr in step.live if expr not in parts]
    if left:
        raise _refusal(step, left, names, ops)
    if "logits" not in ops:
        raise UnsupportedStructureError(expected="the logits to be a linear map", found=step.logits.origin)
    return Recognised(ops=tuple(_head_norms(_read(ops)).values()), tables=tables)


def _match(expr: Expr, start: Match) -> tuple[Match, AnyOp] | None:
    for pattern in PATTERNS.get(expr.op, ()):
        match = Match(names=start.names, ops=start.ops, tables=start.tables)
        try:
            return match, pattern(match, expr)
        except NoMatch:
            continue
    return None


def operands(op: AnyOp) -> list[str]:
    """Values that ``op`` reads."""
    return [str(getattr(op, field)) for field in OPERANDS if hasattr(op, field)]


def tensors(op: AnyOp) -> list[str]:
    """Tensors of the checkpoint that ``op`` reads."""
    held = [getattr(op, field, None) for field in TENSORS]
    return [name for name in held if isinstance(name, str)]


def _read(ops: dict[str, AnyOp]) -> dict[str, AnyOp]:
    """``ops`` without those that only a larger pattern looked at, such as the whole of a fused matrix."""
    wanted = {"logits"}
    for name, op in reversed(ops.items()):
        if name in wanted:
            wanted.update(operands(op))
    return {name: op for name, op in ops.items() if name in wanted}


def _head_norms(ops: dict[str, AnyOp]) -> dict[str, AnyOp]:
    """``ops`` with each norm of queries or keys as the HeadNorm that its place makes it.

    The trace of a norm over a whole row is the same wherever it stands; before an attention it is a norm of heads. Of
    one head, row and head are the same, and are called as those beside them.
    """
    settled = dict(ops)
    for op in ops.values():
        if not isinstance(op, Attention):
            continue
        found: list[HeadNorm] = []
        for value, heads in ((op.q, op.heads), (op.k, op.kv_heads)):
            source = ops[value]
            norm = ops[source.x] if isinstance(source, Rope) else source
            if isinstance(norm, RMSNorm | HeadNorm):
                found.append(_head_norm(norm, heads, op.head_dim))
        row = any(norm.over == "row" and norm.heads > 1 for norm in found)
        for norm in found:
            settled[norm.out] = replace(norm, over="row" if row else "head") if norm.heads == 1 else norm
    astray = [op for op in ops.values() if isinstance(op, HeadNorm) and settled[op.out] is op]
    if astray:
        raise UnsupportedStructureError(
            expected="a norm of heads to stand before an attention", found=f"{astray[0].gain} elsewhere"
        )
    return settled


def _head_norm(norm: RMSNorm | HeadNorm, heads: int, head_dim: int) -> HeadNorm:
    if isinstance(norm, HeadNorm):
        if (norm.heads, norm.head_dim) != (heads, head_dim):
            raise UnsupportedStructureError(
                expected=f"{norm.gain} to norm {heads} heads of {head_dim}", found=f"{norm.heads} of {norm.head_dim}"
            )
        return replace(norm)
    return HeadNorm(
        out=norm.out,
        x=norm.x,
        gain=norm.gain,
        eps=norm.eps,
        heads=heads,
        head_dim=head_dim,
        over="row",
        plus_one=norm.plus_one,
    )


def _refusal(step: Step, left: list[Expr], names: dict[Expr, str], ops: dict[str, AnyOp]) -> UnrecognisedOpError:
    """Name the first thing the model does to a recognised value that no pattern accounts for."""
    computed = [expr for expr in left if expr.args and expr.op != "view"]
    frontier = [expr for expr in computed if any(flat(arg) in names for arg in expr.args)]
    culprit = (frontier or computed or left)[0]
    return UnrecognisedOpError(
        op=culprit.origin or culprit.op, module=culprit.module, tensor=_nearest(step, culprit, names, ops)
    )


def _nearest(step: Step, culprit: Expr, names: dict[Expr, str], ops: dict[str, AnyOp]) -> str:
    """The tensor to look at: an operand of ``culprit``, else one of its module, else the one its operand came from."""
    read = [str(arg.attrs[0]) for arg in reversed(culprit.args) if arg.op == "param"]
    of_module = [name for name in step.parameters if name.startswith(culprit.module + ".")]
    if read or len(of_module) == 1:
        return (read or of_module)[0]
    sources = [ops[names[flat(arg)]] for arg in culprit.args if flat(arg) in names]
    for source in sources:
        return (*tensors(source), source.out)[0]
    return (of_module or ["no tensor"])[0]
