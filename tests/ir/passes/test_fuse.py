"""fuse: ops to hops; what fits no hop is refused by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from amk.errors import EXIT_UNSUPPORTED
from amk.ir.errors import MalformedGraphError, NotFusableError
from amk.ir.graph import Add, AnyOp, GatedMul, Graph, HeadNorm, Linear, RMSNorm, Rope, WeightTensor
from amk.ir.hops import AddNormHop, AttentionHop, GemvHop, NormSpec, Part, SampleHop
from amk.ir.passes.fuse import Fuse
from tests.builders import EMBEDDING, EPS, HEAD, llama_graph

GRAPH = llama_graph(hidden=64, layers=2, heads=4, kv_heads=2, head_dim=16, intermediate=96, vocab=97)


def changed(change: Callable[[AnyOp], AnyOp], graph: Graph = GRAPH) -> Graph:
    return replace(graph, ops=tuple(change(op) for op in graph.ops))


def with_op(out: str, **fields: object) -> Graph:
    """GRAPH with fields of the op that makes ``out`` replaced."""
    assert any(op.out == out for op in GRAPH.ops)
    return changed(lambda op: replace(op, **fields) if op.out == out else op)


def with_ops(after: str, *ops: AnyOp, graph: Graph = GRAPH) -> Graph:
    """``graph`` with more ops behind the one that makes ``after``."""
    place = next(n for n, op in enumerate(graph.ops) if op.out == after) + 1
    return replace(graph, ops=(*graph.ops[:place], *ops, *graph.ops[place:]))


def test_a_layer_is_five_hops_and_the_head_two() -> None:
    names = [hop.name for hop in Fuse().run(GRAPH).hops]
    layers = [f"L{i}.{part}" for i in range(2) for part in ("qkv", "attention", "o", "gate_up", "down")]
    assert names == [*layers, "head", "sample"]


def test_the_program_carries_the_models_shape() -> None:
    program = Fuse().run(GRAPH)
    assert (program.hidden, program.vocab, program.layers, program.rotary_dims) == (64, 97, 2, (16,))
    assert program.embedded == "h0"


def test_the_hops_of_a_layer() -> None:
    qkv, attention, o, gate_up, down = Fuse().run(GRAPH).hops[5:10]
    prefix = "model.layers.1."

    def part(name: str, rows: int, *, block: str = "self_attn") -> Part:
        return Part(weight=f"{prefix}{block}.{name}.weight", rows=(0, rows), whole=True)

    assert qkv == GemvHop(
        name="L1.qkv",
        layer=1,
        x="h1",
        norm=NormSpec(gain=f"{prefix}input_layernorm.weight", eps=EPS),
        parts=(part("q_proj", 64), part("k_proj", 32), part("v_proj", 32)),
        k=64,
        stored="qkv",
        out="L1.qkv",
    )
    assert qkv.rows == (4 + 2 + 2) * 16
    assert attention == AttentionHop(
        name="L1.attention",
        layer=1,
        qkv="L1.qkv",
        out="a1",
        heads=4,
        kv_heads=2,
        head_dim=16,
        scale=0.25,
        rope=0,
        rotary_dim=16,
    )
    assert o == GemvHop(
        name="L1.o",
        layer=1,
        x="a1",
        norm=None,
        parts=(part("o_proj", 64),),
        k=64,
        stored="hidden",
        out="h1m",
        residual="h1",
    )
    assert gate_up == GemvHop(
        name="L1.gate_up",
        layer=1,
        x="h1m",
        norm=NormSpec(gain=f"{prefix}post_attention_layernorm.weight", eps=EPS),
        parts=(part("gate_proj", 96, block="mlp"), part("up_proj", 96, block="mlp")),
        arrange="interleave",
        k=64,
        stored="mlp",
        out="s1",
    )
    assert isinstance(down, GemvHop)
    assert (down.x, down.norm, down.rows, down.k, down.residual, down.out) == ("s1", None, 64, 96, "h1m", "h2")


@pytest.mark.parametrize("tied", [True, False])
def test_the_head(tied: bool) -> None:
    head, sample = Fuse().run(llama_graph(tied=tied)).hops[-2:]
    assert isinstance(head, GemvHop)
    assert [part.weight for part in head.parts] == [EMBEDDING if tied else HEAD]
    assert head.norm == NormSpec(gain="model.norm.weight", eps=EPS)
    assert (head.rows, head.k, head.stored, head.x) == (97, 64, "logits", "h2")
    assert sample == SampleHop(name="sample", table=EMBEDDING, logits="logits")


def test_a_residual_may_stand_on_either_side() -> None:
    mirrored = changed(lambda op: replace(op, a=op.b, b=op.a) if isinstance(op, Add) else op)
    assert Fuse().run(mirrored) == Fuse().run(GRAPH)


def test_head_dim_need_not_divide_hidden() -> None:
    qkv, attention, o = Fuse().run(llama_graph(hidden=64, heads=3, kv_heads=1, head_dim=32)).hops[:3]
    assert isinstance(qkv, GemvHop)
    assert isinstance(o, GemvHop)
    assert (qkv.rows, qkv.k) == (5 * 32, 64)
    assert (o.rows, o.k) == (64, 96)
    assert isinstance(attention, AttentionHop)
    assert attention.head_dim == 32


def rope_on_v() -> Graph:
    graph = with_ops("v0", Rope(out="vr0", x="v0", heads=2, head_dim=16))
    return changed(lambda op: replace(op, v="vr0") if op.out == "a0" else op, graph)


def post_norm() -> Graph:
    extra = RMSNorm(out="po0", x="o0", gain="model.norm.weight", eps=EPS)
    graph = with_ops("o0", extra)
    return changed(lambda op: replace(op, b="po0") if op.out == "h0m" else op, graph)


def mlp_first() -> Graph:
    """The layers of GRAPH with the first MLP moved in front of the first attention."""
    mlp = [op for op in GRAPH.ops if op.out in {"m0", "g0", "u0", "s0", "d0", "h1"}]
    attention = [op for op in GRAPH.ops if op.out in {"n0", "q0", "k0", "v0", "qr0", "kr0", "a0", "o0", "h0m"}]
    moved = {"m0": {"x": "h0"}, "h1": {"a": "h0"}, "n0": {"x": "h1"}, "h0m": {"a": "h1"}, "n1": {"x": "h0m"}}
    moved["h1m"] = {"a": "h0m"}
    rest = [op for op in GRAPH.ops[1:] if op not in mlp and op not in attention]
    ops = (GRAPH.ops[0], *mlp, *attention, *rest)
    return replace(GRAPH, ops=tuple(replace(op, **moved.get(op.out, {})) for op in ops))


AGAIN = RMSNorm(out="pp0", x="po0", gain="model.norm.weight", eps=EPS)


def without(value: str) -> Graph:
    """GRAPH without the Rope that makes ``value``: its reader reads what it read."""
    gone = next(op for op in GRAPH.ops if op.out == value)
    assert isinstance(gone, Rope)
    rest = replace(GRAPH, ops=tuple(op for op in GRAPH.ops if op is not gone))
    return changed(lambda op: replace(op, q=gone.x) if op.out == "a0" else op, rest)


def with_head_norms(which: str, *, over: str = "head") -> Graph:
    """Layer 0 of GRAPH with norms of its queries and keys."""
    graph = GRAPH
    for name, heads in (("q", 4), ("k", 2)):
        if name in which:
            width = 16 if over == "head" else heads * 16
            gain = WeightTensor(name=f"{name}_gain", shape=(width,))
            norm = HeadNorm(out=f"{name}n0", x=f"{name}0", gain=gain.name, eps=EPS, heads=heads, head_dim=16, over=over)
            graph = replace(with_ops(f"{name}0", norm, graph=graph), tensors=(*graph.tensors, gain))
            graph = changed(lambda op, name=name: replace(op, x=f"{name}n0") if op.out == f"{name}r0" else op, graph)
    return graph


def with_biases(*values: str) -> Graph:
    """GRAPH with a bias on each of these Linears."""
    graph = GRAPH
    for value in values:
        linear = next(op for op in GRAPH.ops if op.out == value)
        assert isinstance(linear, Linear)
        bias = WeightTensor(name=f"{value}.bias", shape=(GRAPH.tensor(linear.weight).shape[0],))
        graph = replace(graph, tensors=(*graph.tensors, bias))
        graph = changed(lambda op, value=value: replace(op, bias=f"{value}.bias") if op.out == value else op, graph)
    return graph


def test_a_norm_behind_a_block_is_a_hop_with_the_residual() -> None:
    branch, add = Fuse().run(post_norm()).hops[2:4]
    assert isinstance(branch, GemvHop)
    assert (branch.name, branch.stored, branch.residual) == ("L0.o", "branch", None)
    assert add == AddNormHop(
        name="L0.o_norm",
        layer=0,
        x="o0",
        norm=NormSpec(gain="model.norm.weight", eps=EPS),
        residual="h0",
        out="h0m",
    )


def test_norms_of_queries_and_keys_biases_and_windows_reach_the_hops() -> None:
    qkv, attention = Fuse().run(with_head_norms("qk", over="row")).hops[:2]
    assert isinstance(qkv, GemvHop)
    assert isinstance(attention, AttentionHop)
    assert (attention.q_norm and attention.q_norm.gain, attention.k_norm and attention.k_norm.over) == ("q_gain", "row")
    biased = Fuse().run(with_biases("q0", "k0", "v0")).hops[0]
    assert isinstance(biased, GemvHop)
    assert [part.bias for part in biased.parts] == ["q0.bias", "k0.bias", "v0.bias"]
    windowed = Fuse().run(with_op("a0", window=7, softcap=3.0)).hops[1]
    assert isinstance(windowed, AttentionHop)
    assert (windowed.window, windowed.softcap) == (7, 3.0)


REFUSED = {
    "an op that nothing reads": (
        with_ops("n0", Linear(out="extra", x="n0", weight="model.layers.0.self_attn.q_proj.weight")),
        "Linear (value 'extra')",
        "no hop takes it",
    ),
    "a norm that nothing reads": (
        with_ops("h1", RMSNorm(out="extra", x="h1", gain="model.norm.weight", eps=EPS)),
        "RMSNorm (value 'extra')",
        "no hop takes it",
    ),
    "a projection read twice": (with_op("s0", up="g0"), "'g0'", "more than one op reads it"),
    "q without its norm": (with_op("q0", x="h0"), "'q0'", "different inputs"),
    "gate and up without a norm": (
        changed(lambda op: replace(op, x="h0m") if op.out in {"g0", "u0"} else op),
        "RMSNorm (value 'm0')",
        "no hop takes it",
    ),
    "a norm before o": (
        changed(
            lambda op: replace(op, x="an0") if op.out == "o0" else op,
            with_ops("a0", RMSNorm(out="an0", x="a0", gain="model.norm.weight", eps=EPS)),
        ),
        "'o0'",
        "a norm stands before it",
    ),
    "a norm behind a norm behind o": (
        changed(lambda op: replace(op, b="pp0") if op.out == "h0m" else op, with_ops("po0", AGAIN, graph=post_norm())),
        "'h0m'",
        "neither side is a Linear",
    ),
    "logits without a norm": (with_op("logits", x="h2"), "RMSNorm (value 'final')", "no hop takes it"),
    "a residual that is no Linear": (with_op("h0m", b="h0"), "'h0m'", "neither side is a Linear"),
    "two Linears added": (with_op("h1", a="o0"), "'o0'", "more than one op reads it"),
    "queries that do not turn": (without("qr0"), "'a0'", "not rotated alike"),
    "another rotary table": (with_op("kr0", table=1), "'kr0'", "there is no rotary table 1 of 16 elements"),
    "some elements of the keys": (with_op("kr0", rotary_dim=8), "'kr0'", "there is no rotary table 0 of 8 elements"),
    "a norm of queries alone": (with_head_norms("q"), "'a0'", "one of queries and keys is normed"),
    "some biases": (with_biases("q0"), "'q0'", "some of the projections of one hop have a bias"),
    "a residual that is scaled": (with_op("h0m", a="o0", b="h0", scale=0.5), "'h0m'", "the residual stream is scaled"),
    "a rotary embedding on v": (rope_on_v(), "'vr0'", "Linear is expected here"),
    "heads of another size": (with_op("kr0", heads=4, head_dim=8), "'kr0'", "heads are not those of the attention"),
    "a product of stored values": (
        changed(
            lambda op: replace(op, x="x0") if op.out == "d0" else op,
            with_ops("s0", GatedMul(out="x0", gate="s0", up="s0")),
        ),
        "'s0'",
        "Linear is expected here",
    ),
    "a second embedding": (with_ops("h0", replace(GRAPH.ops[0], out="e")), "'e'", "one Embed"),
    "no logits": (replace(GRAPH, ops=GRAPH.ops[:-2]), "'h2'", "ends with Logits"),
    "logits twice": (with_ops("logits", replace(GRAPH.ops[-1], out="more")), "head", "has such a hop already"),
    "attention and MLP side by side": (with_op("m0", x="h0"), "L0.gate_up", "'h0', which no hop stores or a later"),
    "a residual around two blocks": (with_op("h1", a="h0"), "L0.down", "'h0', which no hop stores or a later"),
    "attention of the layer before": (with_op("o1", x="a0"), "L1.o", "'a0', which no hop stores or a later"),
    "a norm of a norm": (with_op("n1", x="n0"), "L1.qkv", "'n0', which no hop stores"),
    "a layer twice": (with_op("a1", layer=0), "L0.qkv", "has such a hop already"),
    "a layer out of order": (with_op("a1", layer=7), "'logits'", "attention layers are [0, 7], not 0 to 1"),
    "an MLP before any attention": (mlp_first(), "L-1.gate_up", "no attention stands before it"),
    "heads that share no KV head": (llama_graph(heads=9, kv_heads=2), "'a0'", "9 heads do not share 2 KV heads"),
}  # fmt: skip


@pytest.mark.parametrize(("graph", "op", "why"), REFUSED.values(), ids=REFUSED)
def test_what_fits_no_hop_is_refused_by_name(graph: Graph, op: str, why: str) -> None:
    with pytest.raises(NotFusableError) as caught:
        Fuse().run(graph)
    assert str(caught.value).startswith("AMK-F390 the op ")
    assert op in str(caught.value)
    assert why in str(caught.value)
    assert caught.value.exit_code == EXIT_UNSUPPORTED


MALFORMED = {
    "no ops": (replace(GRAPH, ops=()), "the graph", "it has no ops"),
    "a value from nowhere": (replace(GRAPH, ops=GRAPH.ops[1:]), "RMSNorm 'n0'", "'h0' is not defined before it"),
    "a tensor from nowhere": (with_op("q0", weight="lost"), "Linear 'q0'", "'lost' is not defined before it"),
    "a value defined twice": (replace(GRAPH, ops=(GRAPH.ops[0], *GRAPH.ops)), "Embed 'h0'", "defined already"),
    "heads of another count": (with_op("qr0", heads=2), "Rope 'qr0'", "the width of 'q0' is 64, not 32"),
    "a key for a query": (with_op("a0", q="kr0"), "Attention 'a0'", "the width of 'kr0' is 32, not 64"),
    "a gate of another width": (with_op("s0", gate="m0"), "GatedMul 's0'", "the width of 'u0' is 96, not 64"),
    "a gain of another length": (
        with_op("n0", gain="model.layers.0.self_attn.q_proj.weight"),
        "RMSNorm 'n0'",
        "is (64, 64), not (64,)",
    ),
    "a matrix of another width": (
        with_op("o0", weight="model.layers.0.mlp.down_proj.weight"),
        "Linear 'o0'",
        "down_proj.weight is 96, not 64",
    ),
}


@pytest.mark.parametrize(("graph", "op", "why"), MALFORMED.values(), ids=MALFORMED)
def test_a_graph_that_does_not_hang_together_is_refused(graph: Graph, op: str, why: str) -> None:
    with pytest.raises(MalformedGraphError) as caught:
        Fuse().run(graph)
    assert str(caught.value).startswith(f"AMK-F391 {op}")
    assert why in str(caught.value)
