"""fuse: Graph -> Program. Gather ops into hops, so that nothing crosses the chip between two matrices but one row."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TypeVar

from amk.ir.errors import NotFusableError
from amk.ir.graph import Add, AnyOp, Attention, Embed, Graph, Linear, Logits, Op, RMSNorm, Rope, SiluMul
from amk.ir.hops import AttentionHop, GemvHop, Hop, NormSpec, Program, SampleHop
from amk.ir.wellformed import check_graph

OpT = TypeVar("OpT", bound=Op)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fuse:
    """Hops of a layer: [norm + QKV] [RoPE + attention] [O + residual] [norm + gate/up + SiLU*mul] [down + residual].

    A norm is recomputed by every worker from the residual stream: cheaper than a hop of its own.
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
            head_dim=self.graph.rope.head_dim,
            embedded=first.out,
            hops=tuple(hops),
        )

    def check_layers(self, hops: list[Hop]) -> None:
        """Each layer has its hops once, and layers come in order: buffers and counters are named by them."""
        seen: set[str] = set()
        for hop in hops:
            if hop.name in seen:
                raise NotFusableError(op=hop.name, value=hop.name, why="the layer has such a hop already")
            if isinstance(hop, GemvHop) and hop.layer < 0:
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
            case SiluMul():
                parts = [self.take(op.gate, Linear), self.take(op.up, Linear)]
                hop = self.gemv(f"L{self.layer}.gate_up", parts, out=op.out, normed=True)
                hops: list[Hop] = [replace(hop, arrange="interleave", epilogue="silu_mul")]
            case Add():
                hops = [self.projection(op)]
            case Logits():
                hop = self.gemv("head", [Linear(out=op.out, x=op.x, weight=op.weight)], out=op.out, normed=True)
                hops = [replace(hop, epilogue="argmax"), SampleHop(name="sample", table=embed.table, logits=op.out)]
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
        q, k = self.take(op.q, Rope), self.take(op.k, Rope)
        for heads, rope in ((op.heads, q), (op.kv_heads, k)):
            if (rope.heads, rope.head_dim) != (heads, op.head_dim):
                raise _unfusable(rope, "its heads are not those of the attention it feeds")
        if op.heads % op.kv_heads:
            raise _unfusable(op, f"{op.heads} heads do not share {op.kv_heads} KV heads evenly")
        parts = [self.take(q.x, Linear), self.take(k.x, Linear), self.take(op.v, Linear)]
        qkv = self.gemv(f"L{op.layer}.qkv", parts, out=f"L{op.layer}.qkv", normed=True)
        self.consumed.add(op.out)
        attention = AttentionHop(
            name=f"L{op.layer}.attention",
            layer=op.layer,
            qkv=qkv.out,
            out=op.out,
            heads=op.heads,
            kv_heads=op.kv_heads,
            head_dim=op.head_dim,
            scale=op.scale,
        )
        return [qkv, attention]

    def projection(self, op: Add) -> GemvHop:
        """A Linear added to the residual stream, whichever side of the Add it stands on."""
        sides = [(op.a, op.b), (op.b, op.a)]
        found = next((pair for pair in sides if isinstance(self.maker.get(pair[1]), Linear)), None)
        if found is None:
            raise _unfusable(op, "neither side is a Linear")
        residual, value = found
        linear = self.take(value, Linear)
        part = "o" if isinstance(self.maker.get(linear.x), Attention) else "down"
        hop = self.gemv(f"L{self.layer}.{part}", [linear], out=op.out, normed=False)
        return replace(hop, epilogue="add_residual", residual=residual)

    def gemv(self, name: str, parts: list[Linear], *, out: str, normed: bool) -> GemvHop:
        """A hop of the matrices ``parts`` stacked, with the RMSNorm before them taken in."""
        if len({part.x for part in parts}) != 1:
            raise _unfusable(parts[0], "the projections of one hop have different inputs")
        source = self.maker[parts[0].x]
        if normed != isinstance(source, RMSNorm):
            raise _unfusable(parts[0], "no norm stands before it" if normed else "a norm stands before it")
        norm = None
        if isinstance(source, RMSNorm):
            norm = NormSpec(gain=source.gain, eps=source.eps)
            self.consumed.add(source.out)
        shapes = [self.graph.tensor(part.weight).shape for part in parts]
        return GemvHop(
            name=name,
            layer=self.graph.layers if name == "head" else self.layer,
            x=source.x if isinstance(source, RMSNorm) else parts[0].x,
            norm=norm,
            weights=tuple(part.weight for part in parts),
            arrange="stack",
            rows=sum(shape[0] for shape in shapes),
            k=shapes[0][1],
            epilogue="store",
            out=out,
        )

    def take(self, value: str, kind: type[OpT]) -> OpT:
        """The op that makes ``value``; it must be of ``kind`` and serve this hop alone."""
        op = self.maker[value]
        if not isinstance(op, kind):
            raise _unfusable(op, f"{kind.__name__} is expected here")
        if self.users[value] != 1:
            raise _unfusable(op, "more than one op reads it")
        self.consumed.add(value)
        return op


def check_reads(embedded: str, hops: list[Hop]) -> None:
    """Each hop reads values that still stand: the residual stream and each activation are kept once, the newest."""
    held = {"add_residual": embedded}
    for hop in hops:
        if isinstance(hop, SampleHop):
            continue
        reads = (hop.qkv,) if isinstance(hop, AttentionHop) else (hop.x, hop.residual or hop.x)
        for value in reads:
            if value not in held.values():
                why = f"it reads {value!r}, which no hop stores or a later value has replaced"
                raise NotFusableError(op=hop.name, value=hop.out, why=why)
        held["attention" if isinstance(hop, AttentionHop) else hop.epilogue] = hop.out


def inputs(op: AnyOp) -> tuple[str, ...]:
    """Values that ``op`` reads."""
    match op:
        case Embed():
            return ()
        case RMSNorm(x=x) | Linear(x=x) | Rope(x=x) | Logits(x=x):
            return (x,)
        case Attention(q=q, k=k, v=v):
            return (q, k, v)
        case Add(a=a, b=b):
            return (a, b)
        case SiluMul(gate=gate, up=up):
            return (gate, up)


def _unfusable(op: Op, why: str) -> NotFusableError:
    return NotFusableError(op=type(op).__name__, value=op.out, why=why)
