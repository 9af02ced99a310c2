"""Model graphs and schedules for tests, made without a checkpoint."""

from __future__ import annotations

from amk.ir.buffers import Quantization
from amk.ir.graph import (
    Add,
    AnyOp,
    Attention,
    Embed,
    GatedMul,
    Graph,
    Linear,
    Logits,
    RMSNorm,
    Rope,
    RopeTable,
    WeightTensor,
)
from amk.ir.passes import Passes
from amk.ir.passes.tile import Tile
from amk.ir.schedule import Schedule
from amk.target import Target, resolve_target

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
EPS = 1e-5
THETA = 10_000.0


def llama_graph(
    *,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 16,
    intermediate: int = 96,
    vocab: int = 97,
    tied: bool = True,
    context: int = 8192,
) -> Graph:
    """A Llama-family decode step with these sizes and HuggingFace's tensor names; tiny unless told otherwise."""
    tensors: dict[str, tuple[int, ...]] = {}

    def tensor(name: str, *shape: int) -> str:
        tensors[name] = shape
        return name

    embedding = tensor(EMBEDDING, vocab, hidden)
    ops: list[AnyOp] = [Embed(out="h0", table=embedding)]
    for i in range(layers):
        p, x, mid = f"model.layers.{i}.", f"h{i}", f"h{i}m"
        q_size, kv_size = heads * head_dim, kv_heads * head_dim
        ops += [
            RMSNorm(out=f"n{i}", x=x, gain=tensor(p + "input_layernorm.weight", hidden), eps=EPS),
            Linear(out=f"q{i}", x=f"n{i}", weight=tensor(p + "self_attn.q_proj.weight", q_size, hidden)),
            Linear(out=f"k{i}", x=f"n{i}", weight=tensor(p + "self_attn.k_proj.weight", kv_size, hidden)),
            Linear(out=f"v{i}", x=f"n{i}", weight=tensor(p + "self_attn.v_proj.weight", kv_size, hidden)),
            Rope(out=f"qr{i}", x=f"q{i}", heads=heads, head_dim=head_dim),
            Rope(out=f"kr{i}", x=f"k{i}", heads=kv_heads, head_dim=head_dim),
            Attention(
                out=f"a{i}",
                q=f"qr{i}",
                k=f"kr{i}",
                v=f"v{i}",
                layer=i,
                heads=heads,
                kv_heads=kv_heads,
                head_dim=head_dim,
                scale=head_dim**-0.5,
            ),
            Linear(out=f"o{i}", x=f"a{i}", weight=tensor(p + "self_attn.o_proj.weight", hidden, q_size)),
            Add(out=mid, a=x, b=f"o{i}"),
            RMSNorm(out=f"m{i}", x=mid, gain=tensor(p + "post_attention_layernorm.weight", hidden), eps=EPS),
            Linear(out=f"g{i}", x=f"m{i}", weight=tensor(p + "mlp.gate_proj.weight", intermediate, hidden)),
            Linear(out=f"u{i}", x=f"m{i}", weight=tensor(p + "mlp.up_proj.weight", intermediate, hidden)),
            GatedMul(out=f"s{i}", gate=f"g{i}", up=f"u{i}"),
            Linear(out=f"d{i}", x=f"s{i}", weight=tensor(p + "mlp.down_proj.weight", hidden, intermediate)),
            Add(out=f"h{i + 1}", a=mid, b=f"d{i}"),
        ]
    head = embedding if tied else tensor(HEAD, vocab, hidden)
    ops += [
        RMSNorm(out="final", x=f"h{layers}", gain=tensor("model.norm.weight", hidden), eps=EPS),
        Logits(out="logits", x="final", weight=head),
    ]
    return Graph(
        family="llama",
        hidden=hidden,
        vocab=vocab,
        layers=layers,
        context_limit=context,
        ropes=(RopeTable(head_dim=head_dim, spec=()),),
        tensors=tuple(WeightTensor(name=name, shape=shape) for name, shape in sorted(tensors.items())),
        ops=tuple(ops),
    )


def cpu_target(workers: int) -> Target:
    """The reference machine's chip with this many workers."""
    return resolve_target(arch="cpu", target=None, workers=workers)


def lower(
    graph: Graph,
    target: Target | None = None,
    *,
    workers: int = 4,
    max_context: int = 64,
    tokens_per_pass: int = 8,
    splits_max: int = 4,
    bf16_kv: bool = False,
    tagged: bool = True,
    group: int | None = None,
) -> Schedule:
    """What the passes make of ``graph``, for ``target`` or for a cpu of ``workers``; without tagged words if asked.

    ``group`` is of integer weights: columns that share a scale, 0 for all of a row; None for bf16.
    """
    tile = Tile(
        tagged_words=8192 if tagged else 0,
        max_context=max_context,
        tokens_per_pass=tokens_per_pass,
        splits_max=splits_max,
        kv_dtype="bf16" if bf16_kv else "f32",
        quantization=None if group is None else Quantization(group=group),
    )
    return Passes(tile=tile).run(graph, target or cpu_target(workers))
