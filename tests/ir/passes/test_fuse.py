"""fuse: ops to hops; what fits no hop is refused by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from amk.errors import EXIT_UNSUPPORTED
from amk.ir.errors import MalformedGraphError, NotFusableError
from amk.ir.graph import Add, AnyOp, Graph, Linear, RMSNorm, Rope, SiluMul, WeightTensor
from amk.ir.hops import AttentionHop, GemvHop, NormSpec, SampleHop
from amk.ir.passes.fuse import Fuse
from tests.builders import EMBEDDING, EPS, HEAD, llama_graph

GRAPH = llama_graph(hidden=64, layers=2, heads=4, kv_heads=2, head_dim=16, intermediate=96, vocab=97)


def changed(change: Callable[[AnyOp], AnyOp], graph: Graph = GRAPH) -> Graph:
    return replace(graph, ops=tuple(change(op) for op in graph.ops))


def with_op(out: str, **fields: object) -> Graph:
    """GRAPH with fields of the op that makes ``out`` replaced."""
    assert any(op.out == out for op in GRAPH.ops)
    return changed(lambda op: replace(op, **fields) if op.out == out else op)


def with_ops(after: str, *ops: AnyOp, tensors: tuple[WeightTensor, ...] = ()) -> Graph:
    """GRAPH with more ops behind the one that makes ``after``."""
    place = next(n for n, op in enumerate(GRAPH.ops) if op.out == after) + 1
    return replace(GRAPH, ops=(*GRAPH.ops[:place], *ops, *GRAPH.ops[place:]), tensors=GRAPH.tensors + tensors)


def test_a_layer_is_five_hops_and_the_head_two() -> None:
    names = [hop.name for hop in Fuse().run(GRAPH).hops]
    layers = [f"L{i}.{part}" for i in range(2) for part in ("qkv", "attention", "o", "gate_up", "down")]
    assert names == [*layers, "head", "sample"]


def test_the_program_carries_the_models_shape() -> None:
    program = Fuse().run(GRAPH)
    assert (program.hidden, program.vocab, program.layers, program.head_dim) == (64, 97, 2, 16)
    assert program.embedded == "h0"


def test_the_hops_of_a_layer() -> None:
    qkv, attention, o, gate_up, down = Fuse().run(GRAPH).hops[5:10]
    prefix = "model.layers.1."
    assert qkv == GemvHop(
        name="L1.qkv",
        layer=1,
        x="h1",
        norm=NormSpec(gain=f"{prefix}input_layernorm.weight", eps=EPS),
        weights=tuple(f"{prefix}self_attn.{part}_proj.weight" for part in "qkv"),
        arrange="stack",
        rows=(4 + 2 + 2) * 16,
        k=64,
        epilogue="store",
        out="L1.qkv",
    )
    assert attention == AttentionHop(
        name="L1.attention", layer=1, qkv="L1.qkv", out="a1", heads=4, kv_heads=2, head_dim=16, scale=0.25
    )
    assert o == GemvHop(
        name="L1.o",
        layer=1,
        x="a1",
        norm=None,
        weights=(f"{prefix}self_attn.o_proj.weight",),
        arrange="stack",
        rows=64,
        k=64,
        epilogue="add_residual",
        out="h1m",
        residual="h1",
    )
    assert gate_up == GemvHop(
        name="L1.gate_up",
        layer=1,
        x="h1m",
        norm=NormSpec(gain=f"{prefix}post_attention_layernorm.weight", eps=EPS),
        weights=(f"{prefix}mlp.gate_proj.weight", f"{prefix}mlp.up_proj.weight"),
        arrange="interleave",
        rows=2 * 96,
        k=64,
        epilogue="silu_mul",
        out="s1",
    )
    assert isinstance(down, GemvHop)
    assert (down.x, down.norm, down.rows, down.k, down.residual, down.out) == ("s1", None, 64, 96, "h1m", "h2")


@pytest.mark.parametrize("tied", [True, False])
def test_the_head(tied: bool) -> None:
    head, sample = Fuse().run(llama_graph(tied=tied)).hops[-2:]
    assert isinstance(head, GemvHop)
    assert head.weights == ((EMBEDDING if tied else HEAD),)
    assert head.norm == NormSpec(gain="model.norm.weight", eps=EPS)
    assert (head.rows, head.k, head.epilogue, head.x) == (97, 64, "argmax", "h2")
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
        "'g0'",
        "no norm stands before it",
    ),
    "a norm before o": (
        changed(
            lambda op: replace(op, x="an0") if op.out == "o0" else op,
            with_ops("a0", RMSNorm(out="an0", x="a0", gain="model.norm.weight", eps=EPS)),
        ),
        "'o0'",
        "a norm stands before it",
    ),
    "a norm behind o": (post_norm(), "'h0m'", "neither side is a Linear"),
    "logits without a norm": (with_op("logits", x="h2"), "'logits'", "no norm stands before it"),
    "a residual that is no Linear": (with_op("h0m", b="h0"), "'h0m'", "neither side is a Linear"),
    "two Linears added": (with_op("h1", a="o0"), "'o0'", "more than one op reads it"),
    "no rotary embedding": (with_op("a0", q="q0"), "'q0'", "Rope is expected here"),
    "a rotary embedding on v": (rope_on_v(), "'vr0'", "Linear is expected here"),
    "heads of another size": (with_op("kr0", heads=4, head_dim=8), "'kr0'", "heads are not those of the attention"),
    "a product of stored values": (
        changed(
            lambda op: replace(op, x="x0") if op.out == "d0" else op,
            with_ops("s0", SiluMul(out="x0", gate="s0", up="s0")),
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
    "a gate of another width": (with_op("s0", gate="m0"), "SiluMul 's0'", "the width of 'u0' is 96, not 64"),
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
