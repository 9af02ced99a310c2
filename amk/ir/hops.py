"""What the fuse pass makes of a Graph: hops. A hop is work between two global dependencies.

The tasks of one hop are independent of each other and need all of the hop before. A Llama layer has five.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from amk.ir.buffers import Arrange

EpilogueKind = Literal["store", "add_residual", "silu_mul", "argmax"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NormSpec:
    """RMSNorm in front of a GEMV: the checkpoint's gain tensor and epsilon."""

    gain: str
    eps: float


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
        Graph values. ``residual`` only under ``add_residual``.
    weights, arrange
        Checkpoint tensors that make up the matrix, and how (see ``buffers.Source``).
    """

    name: str
    layer: int
    x: str
    norm: NormSpec | None
    weights: tuple[str, ...]
    arrange: Arrange
    rows: int
    k: int
    epilogue: EpilogueKind
    out: str
    residual: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionHop:
    """Rotary embedding and causal attention; ``qkv`` is the fused projection's value."""

    name: str
    layer: int
    qkv: str
    out: str
    heads: int
    kv_heads: int
    head_dim: int
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleHop:
    """Argmax over workers, the token, and the next step's embedding."""

    name: str
    table: str
    logits: str


Hop = GemvHop | AttentionHop | SampleHop


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A whole step as hops in execution order. ``embedded`` is the residual stream's first value."""

    hidden: int
    vocab: int
    layers: int
    head_dim: int
    embedded: str
    hops: tuple[Hop, ...]
