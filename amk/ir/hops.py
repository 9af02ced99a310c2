"""What the fuse pass makes of a Graph: hops. A hop is work between two global dependencies.

The tasks of one hop are independent of each other and need all of the hop before. A Llama layer has five.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from amk.ir.activation import Activation
from amk.ir.buffers import Arrange
from amk.ir.graph import HeadNorm

Stored = Literal["qkv", "branch", "mlp", "hidden", "logits"]
"""Where a GEMV's rows go: the projections, a block's output that is normed before it is added, the gated MLP, the
residual stream, the logits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NormSpec:
    """A norm of the whole row: the checkpoint's gain tensor, to which ``plus`` is added, and epsilon.

    ``centred`` makes it a LayerNorm, which may have a bias.
    """

    gain: str
    eps: float
    plus: float = 0.0
    centred: bool = False
    bias: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Rows of a checkpoint tensor that make up a matrix with others, and the bias of the whole tensor.

    ``whole`` if they are all its rows.
    """

    weight: str
    rows: tuple[int, int]
    whole: bool
    bias: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GemvHop:
    """One matrix, [rows, k], times the step's rows.

    Attributes
    ----------
    name
        Unique and short, ``L3.qkv``.
    layer
        Attention layer it belongs to; the number of layers for the head.
    x, out, residual
        Graph values. ``residual`` only where the rows go to the residual stream.
    parts, arrange
        What makes up the matrix, and how (see ``buffers.Source``).
    stored
        Where the rows go.
    activation
        Of the gate, where they go to the MLP.
    scale, softcap
        Of what is added to the residual stream, or of the logits.
    """

    name: str
    layer: int
    x: str
    norm: NormSpec | None
    parts: tuple[Part, ...]
    k: int
    out: str
    stored: Stored
    arrange: Arrange = "stack"
    residual: str | None = None
    activation: Activation = "silu"
    scale: float = 1.0
    softcap: float | None = None

    @property
    def rows(self) -> int:
        """Of the whole matrix."""
        return sum(high - low for low, high in (part.rows for part in self.parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionHop:
    """Norms of queries and keys, rotary embedding and causal attention; ``qkv`` is the fused projection's value.

    ``rope`` is the number of the rotary table, None where there is none.
    """

    name: str
    layer: int
    qkv: str
    out: str
    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    rope: int | None
    rotary_dim: int
    window: int | None = None
    softcap: float | None = None
    q_norm: HeadNorm | None = None
    k_norm: HeadNorm | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddNormHop:
    """A block's output, normed and added to the residual stream."""

    name: str
    layer: int
    x: str
    norm: NormSpec
    residual: str
    out: str
    scale: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleHop:
    """Argmax over workers, the token, and the next step's embedding."""

    name: str
    table: str
    logits: str
    scale: float = 1.0


Hop = GemvHop | AttentionHop | AddNormHop | SampleHop


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A whole step as hops in execution order. ``embedded`` is the residual stream's first value.

    ``rotary_dims`` are the elements that turn by each rotary table.
    """

    hidden: int
    vocab: int
    layers: int
    rotary_dims: tuple[int, ...]
    embedded: str
    hops: tuple[Hop, ...]
