"""fuse: Graph -> Program. Gather ops into hops, so that nothing crosses the chip between two matrices but one row."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TypeVar

from amk.ir.errors import NotFusableError
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
    Op,
    RMSNorm,
    Rope,
)
from amk.ir.hops import AddNormHop, AttentionHop, GemvHop, Hop, NormSpec, Part, Program, SampleHop, Stored
from amk.ir.wellformed import check_graph

OpT = TypeVar("OpT", bound=Op)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fuse:
    """Hops of a layer: [norm + QKV] [RoPE + attention] [O + residual] [norm + gate/up + SiLU*mul] [down + residual].

    A norm before a matrix is recomputed by every worker from the residual stream: cheaper than a hop of its own. A norm
    behind a block needs the whole row of its output, which no worker has: it is a hop with the residual, [norm + add].
    """

    def run(self, graph: Graph) -> Program:
        """Fuse ``graph``.

        Raises
        ------
        MalformedGraphError
            The graph does not hang together.
        NotFusableError
            An op is left over or stands where no hop takes it: nothing is dropped silently.
        """
        check_graph(graph)
        return _Fuser(graph).program()


class _Fuser:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.maker: dict[str, AnyOp] = {op.out: op for op in graph.ops}
        self.users: defaultdict[str, int] = defaultdict(int)
        for op in graph.ops:
            for value in inputs(op):
                self.users[value] += 1
        self.consumed: set[str] = set()
        self.layer = -1

    def program(self) -> Program:
        first, last = self.graph.ops[0], self.graph.ops[-1]
        if not isinstance(first, Embed):
            raise _unfusable(first, "a graph opens with Embed")
        if not isinstance(last, Logits):
            raise _unfusable(last, "a graph ends with Logits")
        hops = [hop for op in self.graph.ops for hop in self.hops_of(op, first)]
        for op in self.graph.ops:
            if op.out not in self.consumed:
                raise _unfusable(op, "no hop takes it")
        self.check_layers(hops)
        check_reads(first.out, hops)
        return Program(
            hidden=self.graph.hidden,
            vocab=self.graph.vocab,
            layers=self.graph.layers,
            rotary_dims=tuple(table.head_dim for table in self.graph.ropes),
            embedded=first.out,
            hops=tuple(hops),
        )

    def check_layers(self, hops: list[Hop]) -> None:
        """Each layer has its hops once, and layers come in order: buffers and counters are named by them."""
        seen: set[str] = set()
        for hop in hops:
            if hop.name in seen:
                raise NotFusableError(op=hop.name, value=hop.name, why="the layer has such a hop already")
            if isinstance(hop, GemvHop | AddNormHop) and hop.layer < 0:
                raise NotFusableError(op=hop.name, value=hop.out, why="no attention stands before it")
            seen.add(hop.name)
        layers = [hop.layer for hop in hops if isinstance(hop, AttentionHop)]
        if layers != list(range(self.graph.layers)):
            why = f"attention layers are {layers}, not 0 to {self.graph.layers - 1} in order"
            raise _unfusable(self.graph.ops[-1], why)

    def hops_of(self, op: AnyOp, embed: Embed) -> list[Hop]:
        """The hops that ``op`` is the root of; the ops it takes in are marked consumed."""
        match op:
            case Attention():
                return self.attention(op)
            case GatedMul():
                parts = [self.take(op.gate, Linear), self.take(op.up, Linear)]
                hop = self.gemv(f"L{self.layer}.gate_up", parts, out=op.out, stored="mlp")
                hops: list[Hop] = [replace(hop, arrange="interleave", activation=op.activation)]
            case Add():
                hops = self.projection(op)
            case Logits():
                head = Linear(out=op.out, x=op.x, weight=op.weight, bias=op.bias)
                hop = self.gemv("head", [head], out=op.out, stored="logits")
                sample = SampleHop(name="sample", table=embed.table, logits=op.out, scale=embed.scale)
                hops = [replace(hop, scale=op.scale, softcap=op.softcap), sample]
            case Embed():
                if op is not embed:
                    raise _unfusable(op, "a graph has one Embed")
                hops = []
            case _:  # taken in by the hop of the op that reads it, or reported as left over
                return []
        self.consumed.add(op.out)
        return hops

    def attention(self, op: Attention) -> list[Hop]:
        self.layer = op.layer
        if op.heads % op.kv_heads:
            raise _unfusable(op, f"{op.heads} heads do not share {op.kv_heads} KV heads evenly")
        q, q_norm, q_rope = self.heads(op, op.q, op.heads)
        k, k_norm, k_rope = self.heads(op, op.k, op.kv_heads)
        if q_rope != k_rope:
            raise _unfusable(op, "queries and keys are not rotated alike")
        if (q_norm is None) != (k_norm is None):
            raise _unfusable(op, "one of queries and keys is normed")
        qkv = self.gemv(f"L{op.layer}.qkv", [q, k, self.take(op.v, Linear)], out=f"L{op.layer}.qkv", stored="qkv")
        self.consumed.add(op.out)
        rope, rotary_dim = q_rope
        attention = AttentionHop(
            name=f"L{op.layer}.attention",
            layer=op.layer,
            qkv=qkv.out,
            out=op.out,
            heads=op.heads,
            kv_heads=op.kv_heads,
            head_dim=op.head_dim,
            scale=op.scale,
            rope=rope,
            rotary_dim=rotary_dim,
            window=op.window,
            softcap=op.softcap,
            q_norm=q_norm,
            k_norm=k_norm,
        )
        return [qkv, attention]

    def heads(
        self, attention: Attention, value: str, count: int
    ) -> tuple[Linear, HeadNorm | None, tuple[int | None, int]]:
        """The matrix, the norm and the rotation (table, elements) of queries or keys."""
        rotation: tuple[int | None, int] = (None, 0)
        norm = None
        if isinstance(self.maker[value], Rope):
            rope = self.take(value, Rope)
            self.check_heads(rope, attention, count)
            rotary_dim = rope.rotary_dim or rope.head_dim
            if not 0 <= rope.table < len(self.graph.ropes) or self.graph.ropes[rope.table].head_dim != rotary_dim:
                raise _unfusable(rope, f"there is no rotary table {rope.table} of {rotary_dim} elements")
            rotation, value = (rope.table, rotary_dim), rope.x
        if isinstance(self.maker[value], HeadNorm):
            norm = self.take(value, HeadNorm)
            self.check_heads(norm, attention, count)
            value = norm.x
        return self.take(value, Linear), norm, rotation

    def check_heads(self, op: Rope | HeadNorm, attention: Attention, count: int) -> None:
        if (op.heads, op.head_dim) != (count, attention.head_dim):
            raise _unfusable(op, "its heads are not those of the attention it feeds")

    def projection(self, op: Add) -> list[Hop]:
        """A block's Linear added to the residual stream, at once or behind a norm, whichever side it stands on."""
        sides = [(op.a, op.b), (op.b, op.a)]
        found = next((pair for pair in sides if isinstance(self.behind_norm(pair[1]), Linear)), None)
        if found is None:
            raise _unfusable(op, "neither side is a Linear")
        residual, value = found
        if op.scale != 1.0 and value != op.b:
            raise _unfusable(op, "the residual stream is scaled, not what is added to it")
        norm = self.take(value, RMSNorm) if isinstance(self.maker[value], RMSNorm) else None
        linear = self.take(norm.x if norm else value, Linear)
        part = "o" if isinstance(self.maker.get(linear.x), Attention) else "down"
        name = f"L{self.layer}.{part}"
        if norm is None:
            hop = self.gemv(name, [linear], out=op.out, stored="hidden")
            return [replace(hop, residual=residual, scale=op.scale)]
        branch = self.gemv(name, [linear], out=linear.out, stored="branch")
        add = AddNormHop(
            name=f"{name}_norm",
            layer=self.layer,
            x=branch.out,
            norm=norm_spec(norm),
            residual=residual,
            out=op.out,
            scale=op.scale,
        )
        return [branch, add]

    def behind_norm(self, value: str) -> AnyOp | None:
        """What makes a value, or what makes the value that its norm is of."""
        op = self.maker.get(value)
        return self.maker.get(op.x) if isinstance(op, RMSNorm) else op

    def gemv(self, name: str, linears: list[Linear], *, out: str, stored: Stored) -> GemvHop:
        """A hop of matrices stacked, with the norm before them taken in, if there is one."""
        if len({linear.x for linear in linears}) != 1:
            raise _unfusable(linears[0], "the projections of one hop have different inputs")
        if len({linear.bias is None for linear in linears}) != 1:
            raise _unfusable(linears[0], "some of the projections of one hop have a bias")
        source = self.maker[linears[0].x]
        norm = None
        if isinstance(source, RMSNorm | LayerNorm):
            if stored in ("hidden", "branch"):
                raise _unfusable(linears[0], "a norm stands before it")
            norm = norm_spec(source)
            self.consumed.add(source.out)
        return GemvHop(
            name=name,
            layer=self.graph.layers if name == "head" else self.layer,
            x=source.x if isinstance(source, RMSNorm | LayerNorm) else linears[0].x,
            norm=norm,
            parts=tuple(self.part(linear) for linear in linears),
            k=self.graph.tensor(linears[0].weight).shape[1],
            out=out,
            stored=stored,
        )

    def part(self, linear: Linear) -> Part:
        every = (0, self.graph.tensor(linear.weight).shape[0])
        rows = linear.rows or every
        return Part(weight=linear.weight, rows=rows, whole=rows == every, bias=linear.bias)

    def take(self, value: str, kind: type[OpT]) -> OpT:
        """The op that makes ``value``; it must be of ``kind`` and serve this hop alone."""
        op = self.maker[value]
        if not isinstance(op, kind):
            raise _unfusable(op, f"{kind.__name__} is expected here")
        if self.users[value] != 1:
            raise _unfusable(op, "more than one op reads it")
        self.consumed.add(value)
        return op


def norm_spec(norm: RMSNorm | LayerNorm) -> NormSpec:
    """A norm of the graph as a hop takes it in."""
    if isinstance(norm, LayerNorm):
        return NormSpec(gain=norm.gain, eps=norm.eps, centred=True, bias=norm.bias)
    return NormSpec(gain=norm.gain, eps=norm.eps, plus=float(norm.plus_one))


def check_reads(embedded: str, hops: list[Hop]) -> None:
    """Each hop reads values that still stand: the residual stream and each activation are kept once, the newest."""
    held = {"hidden": embedded}
    for hop in hops:
        if isinstance(hop, SampleHop):
            continue
        reads = (hop.qkv,) if isinstance(hop, AttentionHop) else (hop.x, hop.residual or hop.x)
        for value in reads:
            if value not in held.values():
                why = f"it reads {value!r}, which no hop stores or a later value has replaced"
                raise NotFusableError(op=hop.name, value=hop.out, why=why)
        match hop:
            case AttentionHop():
                held["attention"] = hop.out
            case AddNormHop():
                held["hidden"] = hop.out
            case GemvHop():
                held[hop.stored] = hop.out


def inputs(op: AnyOp) -> tuple[str, ...]:
    """Values that ``op`` reads."""
    match op:
        case Embed():
            return ()
        case RMSNorm(x=x) | LayerNorm(x=x) | HeadNorm(x=x) | Linear(x=x) | Rope(x=x) | Logits(x=x):
            return (x,)
        case Attention(q=q, k=k, v=v):
            return (q, k, v)
        case Add(a=a, b=b):
            return (a, b)
        case GatedMul(gate=gate, up=up):
            return (gate, up)


def _unfusable(op: Op, why: str) -> NotFusableError:
    return NotFusableError(op=type(op).__name__, value=op.out, why=why)
