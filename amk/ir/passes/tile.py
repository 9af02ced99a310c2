"""tile: Program -> Tiled. Choose the buffers, and cut each hop into tasks that no worker owns yet."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from amk.errors import BadOptionError
from amk.ir.buffers import Buffer, Dtype, Kind, Operand, Quantization, RopeSource, Source
from amk.ir.graph import HeadNorm as GraphHeadNorm
from amk.ir.hops import AddNormHop, AttentionHop, GemvHop, Hop, NormSpec, Program, SampleHop
from amk.ir.layout import TILE_COLUMNS, TILE_ROWS, tiles_summed
from amk.ir.passes.matrix import SCALES, matrix, rows_taken
from amk.ir.tasks import (
    AddNorm,
    AddResidual,
    AnyKind,
    Argmax,
    Attention,
    Epilogue,
    GatedMul,
    Gemv,
    HeadNorm,
    LayerNorm,
    MergeSplits,
    Norm,
    Prologue,
    Sample,
    Store,
)
from amk.target import Target

EOS_SLOTS = 16

MERGED_BYTES = 128 * 1024
"""Most that a worker reads of a row's attention results to merge them: 3 us of its share of what L2 gives."""


TAGGED_WORDS_MAX = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class TiledHop:
    """A hop's tasks, in the order of their rows or heads. ``name`` is the hop's."""

    name: str
    tasks: tuple[AnyKind, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiled:
    """All hops cut into tasks, and every buffer they name."""

    buffers: tuple[Buffer, ...]
    hops: tuple[TiledHop, ...]
    max_context: int
    tokens_per_pass: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """Options of the pass.

    Attributes
    ----------
    max_context
        Positions the KV cache holds.
    tokens_per_pass
        Most rows of a step.
    kv_dtype
        How k and v are kept.
    quantization
        How the matrices that are multiplied become integers; None where they are bf16. A table that only embeds is
        bf16; one that is the head's too is what the head has.
    splits_max
        Most runs the past of one KV head is cut into. The reader merges them, each O worker on its own, so there are
        no more than ``MERGED_BYTES`` of them allow.
    tagged_words
        Most words of a row that a worker polls. A buffer with wider rows is plain, and a counter says when it is
        written; 0 for all of them.
    """

    max_context: int
    tokens_per_pass: int = 8
    kv_dtype: Literal["f32", "bf16"] = "f32"
    quantization: Quantization | None = None
    splits_max: int = 16
    tagged_words: int = 6144

    def __post_init__(self) -> None:
        for option, value, most in (
            ("max_context", self.max_context, 2**31 - 1),
            ("tokens_per_pass", self.tokens_per_pass, self.max_context),
            ("splits_max", self.splits_max, 1024),
        ):
            if not 1 <= value <= most:
                raise BadOptionError(option=option, value=value, why="it is out of range", fix=f"use 1 to {most}")
        if not 0 <= self.tagged_words <= TAGGED_WORDS_MAX:
            fix = f"use 0 to {TAGGED_WORDS_MAX}"
            raise BadOptionError(option="tagged_words", value=self.tagged_words, why="it is out of range", fix=fix)

    def run(self, program: Program, target: Target) -> Tiled:
        """Cut ``program`` for the workers of ``target``."""
        return _Tiler(self, program, target).tiled()

    def splits(self, kv_heads: int, width: int, target: Target) -> int:
        """Runs of the past per KV head: as many as leave every worker at most one, within the bounds above.

        ``width`` is what each of them gives of a row: elements of all heads.
        """
        return max(1, min(self.splits_max, target.workers // kv_heads, MERGED_BYTES // (4 * width)))


def pieces(rows: int, workers: int, *, tile_rows: int = TILE_ROWS) -> list[tuple[int, int]]:
    """Cut ``[0, rows)`` into at most ``workers`` runs of whole tiles, as even as whole tiles allow, longest first."""
    tiles = -(-rows // tile_rows)
    count = min(workers, tiles)
    base, longer = divmod(tiles, count)
    cuts = [0]
    for piece in range(count):
        cuts.append(cuts[-1] + (base + (piece < longer)) * tile_rows)
    cuts[-1] = rows
    return list(pairwise(cuts))


def _rope(table: int) -> str:
    """The buffer of a rotary table."""
    return f"rope{table or ''}"


class _Tiler:
    def __init__(self, options: Tile, program: Program, target: Target) -> None:
        self.options = options
        self.program = program
        self.target = target
        self.buffers: dict[str, Buffer] = {}
        # The residual stream lives in one buffer, updated in place; each update is a version of the step. The first
        # value is the last step's final version: the embedding that its sampler wrote.
        stream = [
            hop.out
            for hop in program.hops
            if isinstance(hop, AddNormHop) or (isinstance(hop, GemvHop) and hop.stored == "hidden")
        ]
        self.residual = {value: Operand(buffer="hidden", version=v) for v, value in enumerate(stream)}
        self.residual[program.embedded] = Operand(buffer="hidden", version=len(stream), lag=1)
        self.branches = [hop.x for hop in program.hops if isinstance(hop, AddNormHop)]
        self.group = options.quantization.group if options.quantization else 0
        self.tags = options.tagged_words if self.may_tag() else 0
        self.stored: dict[str, Operand] = {}
        self.merges: dict[str, MergeSplits] = {}

    def add(
        self,
        name: str,
        kind: Kind,
        dtype: Dtype,
        *shape: int,
        versions: int = 1,
        tagged: bool = False,
        source: Source | RopeSource | None = None,
    ) -> None:
        """Declare a buffer; every layer that reuses it declares it again, alike."""
        self.buffers[name] = Buffer(
            id=name, kind=kind, dtype=dtype, shape=shape, versions=versions, tagged=tagged, source=source
        )

    def may_tag(self) -> bool:
        """Whether the residual stream can be tagged, without which tagging the rest gains nothing.

        A worker stores no tagged word before its last read (V2): what it stores piece by piece it must have read whole.
        Norms that read a row more than once before the product, or stand behind a block, wait for a counter.
        """
        hops = self.program.hops
        return self.program.hidden <= self.options.tagged_words and not any(
            isinstance(hop, AddNormHop) or (isinstance(hop, GemvHop) and not self.may_tag_rows(hop)) for hop in hops
        )

    def may_tag_rows(self, hop: GemvHop) -> bool:
        if hop.stored == "logits":
            return True  # which are not tagged
        read_whole = hop.k <= self.target.k_chunk
        tiles, most = -(-hop.rows // (TILE_ROWS * self.target.workers)), self.options.tokens_per_pass
        stored_at_once = all(tiles <= tiles_summed(self.target.consumer_warps, rows, most) for rows in {1, most})
        return (read_whole or stored_at_once) and not (hop.norm and hop.norm.centred)

    def tiled(self) -> Tiled:
        t, context = self.options.tokens_per_pass, self.options.max_context
        self.add("hidden", "state", "f32", t, self.program.hidden, versions=len(self.residual), tagged=self.tags > 0)
        for table, rotary_dim in enumerate(self.program.rotary_dims):
            self.add(_rope(table), "const", "f32", context, 2, rotary_dim // 2, source=RopeSource(table=table))
        self.add("prompt", "input", "i32", context)
        self.add("prompt_length", "input", "i32", 1)
        self.add("eos", "input", "i32", EOS_SLOTS)
        self.add("token", "output", "i32", context + 1)
        self.add("stop", "state", "i32", 1)
        hops = tuple(TiledHop(name=hop.name, tasks=self.tasks(hop)) for hop in self.program.hops)
        return Tiled(buffers=tuple(self.buffers.values()), hops=hops, max_context=context, tokens_per_pass=t)

    def tasks(self, hop: Hop) -> tuple[AnyKind, ...]:
        match hop:
            case GemvHop():
                return self.gemv(hop)
            case AttentionHop():
                return self.attention(hop)
            case AddNormHop():
                return self.add_norm(hop)
            case SampleHop():
                return self.sample(hop)

    def gemv(self, hop: GemvHop) -> tuple[AnyKind, ...]:
        weight, scales = self.weight(hop)
        prologue = self.norm(hop.norm, hop.k) if hop.norm else self.merges.get(hop.x)
        x, bias = self.operand(hop.x), self.bias(hop)
        cuts = pieces(hop.rows, self.target.workers)
        return tuple(
            Gemv(
                x=x,
                k=hop.k,
                weight=weight,
                rows=rows,
                prologue=prologue,
                epilogue=self.epilogue(hop, slot=slot, slots=len(cuts)),
                x_rows="last" if hop.stored == "logits" else "all",
                bias=bias,
                scales=scales,
                group=self.group,
            )
            for slot, rows in enumerate(cuts)
        )

    def norm(self, norm: NormSpec, width: int) -> Prologue:
        gain = self.vector(norm.gain, width, plus=norm.plus)
        if not norm.centred:
            return Norm(gain=gain, eps=norm.eps)
        return LayerNorm(gain=gain, eps=norm.eps, bias=None if norm.bias is None else self.vector(norm.bias, width))

    def vector(self, tensor: str, width: int, *, plus: float = 0.0) -> str:
        """A gain or bias of the checkpoint, in float32."""
        self.add(tensor, "const", "f32", width, source=Source(tensors=(tensor,), plus=plus))
        return tensor

    def bias(self, hop: GemvHop) -> str | None:
        """The biases of the hop's matrix, arranged as its rows are."""
        tensors = tuple(part.bias for part in hop.parts if part.bias is not None)
        if not tensors:
            return None
        if len(tensors) == 1:
            return self.vector(tensors[0], hop.rows)
        name = f"{hop.name}.bias"
        source = Source(tensors=tensors, arrange=hop.arrange, rows=rows_taken(hop))
        self.add(name, "const", "f32", hop.rows, source=source)
        return name

    def epilogue(self, hop: GemvHop, *, slot: int, slots: int) -> Epilogue:
        t = self.options.tokens_per_pass
        match hop.stored:
            case "qkv":
                return Store(out=self.stores("qkv", hop, t, hop.rows))
            case "branch":
                return Store(out=self.branch(hop, t))
            case "mlp":
                return GatedMul(out=self.stores("mlp", hop, t, hop.rows // 2), activation=hop.activation)
            case "hidden":
                assert hop.residual is not None
                return AddResidual(residual=self.residual[hop.residual], out=self.residual[hop.out], scale=hop.scale)
            case "logits":
                self.add("logits", "output", "f32", hop.rows)
                self.add("best_value", "activation", "f32", slots)
                self.add("best_index", "activation", "i32", slots)
                return Argmax(
                    logits=Operand(buffer="logits"),
                    value=Operand(buffer="best_value"),
                    index=Operand(buffer="best_index"),
                    slot=slot,
                    prompt_length="prompt_length",
                    scale=hop.scale,
                    softcap=hop.softcap,
                )

    def branch(self, hop: GemvHop, rows: int) -> Operand:
        """Where a block's output is kept until it is normed: two blocks a layer, each a version."""
        self.add("branch", "activation", "f32", rows, hop.rows, versions=len(self.branches))
        self.stored[hop.out] = Operand(buffer="branch", version=self.branches.index(hop.out))
        return self.stored[hop.out]

    def add_norm(self, hop: AddNormHop) -> tuple[AnyKind, ...]:
        width = self.program.hidden
        gain = self.vector(hop.norm.gain, width, plus=hop.norm.plus)
        return tuple(
            AddNorm(
                x=self.operand(hop.x),
                k=width,
                gain=gain,
                eps=hop.norm.eps,
                residual=self.residual[hop.residual],
                out=self.residual[hop.out],
                columns=columns,
                scale=hop.scale,
            )
            for columns in pieces(width, self.target.workers, tile_rows=TILE_COLUMNS)
        )

    def attention(self, hop: AttentionHop) -> tuple[AnyKind, ...]:
        t, width = self.options.tokens_per_pass, hop.heads * hop.head_dim
        splits = self.options.splits(hop.kv_heads, width, self.target)
        # Plain: all splits are read by every reader, which would poll each other's way.
        shape, stats = (splits, t, width) if splits > 1 else (t, width), None
        out = self.activation("attn", hop, *shape, tagged=False)
        self.stored[hop.out] = out
        if splits > 1:
            stats = self.activation("attn_stats", hop, splits, t, hop.heads, 2, tagged=False)
            self.merges[hop.out] = MergeSplits(stats=stats, splits=splits, heads=hop.heads)
        q_norm, k_norm = self.head_norm(hop.q_norm), self.head_norm(hop.k_norm)
        cache = {name: f"L{hop.layer}.{name}_cache" for name in ("k", "v")}
        for name in cache.values():
            self.add(name, "kv", self.options.kv_dtype, hop.kv_heads, self.options.max_context, hop.head_dim)
        return tuple(
            Attention(
                qkv=self.operand(hop.qkv),
                k_cache=cache["k"],
                v_cache=cache["v"],
                rope=None if hop.rope is None else _rope(hop.rope),
                rotary_dim=hop.rotary_dim,
                out=out,
                stats=stats,
                kv_head=kv_head,
                split=split,
                splits=splits,
                heads=hop.heads,
                kv_heads=hop.kv_heads,
                head_dim=hop.head_dim,
                scale=hop.scale,
                window=hop.window,
                softcap=hop.softcap,
                q_norm=q_norm,
                k_norm=k_norm,
            )
            for split in range(splits)
            for kv_head in range(hop.kv_heads)
        )

    def head_norm(self, norm: GraphHeadNorm | None) -> HeadNorm | None:
        if norm is None:
            return None
        width = norm.head_dim if norm.over == "head" else norm.heads * norm.head_dim
        gain = self.vector(norm.gain, width, plus=float(norm.plus_one))
        return HeadNorm(gain=gain, eps=norm.eps, over=norm.over)

    def sample(self, hop: SampleHop) -> tuple[AnyKind, ...]:
        if hop.table not in self.buffers:
            source = Source(tensors=(hop.table,))
            self.add(hop.table, "weight", "bf16", self.program.vocab, self.program.hidden, source=source)
        scales = hop.table + SCALES if hop.table + SCALES in self.buffers else None
        first = self.residual[self.program.embedded]
        kind = Sample(
            value=Operand(buffer="best_value"),
            index=Operand(buffer="best_index"),
            slots=self.buffers["best_value"].shape[0],
            prompt="prompt",
            prompt_length="prompt_length",
            eos="eos",
            table=hop.table,
            hidden=self.program.hidden,
            token=Operand(buffer="token"),
            stop=Operand(buffer="stop"),
            next_hidden=Operand(buffer=first.buffer, version=first.version),
            scale=hop.scale,
            scales=scales,
            group=self.group if scales else 0,
        )
        return (kind,)

    def weight(self, hop: GemvHop) -> tuple[str, str | None]:
        """The buffers of the hop's matrix and of its scales."""
        values, scales = matrix(hop, self.options.quantization)
        self.buffers |= {buffer.id: buffer for buffer in (values, scales) if buffer}
        return values.id, scales.id if scales else None

    def operand(self, value: str) -> Operand:
        """Where a graph value is read."""
        return self.residual.get(value) or self.stored[value]

    def stores(self, buffer: str, hop: GemvHop, rows: int, width: int) -> Operand:
        """Where a GEMV's rows are stored."""
        self.stored[hop.out] = self.activation(buffer, hop, rows, width, tagged=width <= self.tags)
        return self.stored[hop.out]

    def activation(self, buffer: str, hop: GemvHop | AttentionHop, *shape: int, tagged: bool) -> Operand:
        """A buffer of every layer.

        The layers reuse it, each as a version, where all that stands between one and the next is ordered by counters,
        or the words themselves say whose they are. A plain buffer between tagged ones is each layer's own: tags order
        nothing but their own words, so nobody would know when it may be written again.
        """
        if self.tags and not tagged:
            self.add(f"L{hop.layer}.{buffer}", "activation", "f32", *shape)
            return Operand(buffer=f"L{hop.layer}.{buffer}")
        self.add(buffer, "activation", "f32", *shape, versions=self.program.layers, tagged=tagged)
        return Operand(buffer=buffer, version=hop.layer)
