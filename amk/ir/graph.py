"""The model as ops on tensors: what the frontend recognises and the passes lower.

One ``Graph`` is one decode step over ``tokens`` rows: token ids in, logits of the last row out. Values are single
assignment and named by strings; ops are in execution order. A row of a value is one token's vector. Nothing here
knows of workers, tiles or HuggingFace.
"""

from __future__ import annotations

import hashlib
from typing import Final, Literal

import msgspec

from amk.ir.activation import Activation
from amk.ir.record import Record

GRAPH_VERSION: Final = 1


class WeightTensor(Record):
    """A tensor of the checkpoint, under its name there. ``shape`` is [rows, columns] of a matrix or [n] of a vector."""

    name: str
    shape: tuple[int, ...]


class Op(Record, tag_field="op"):
    """Base of the model-level ops. ``out`` names the value it defines."""

    out: str


class Embed(Op, tag="embed"):
    """out[t] = table[ids[t]] * scale; ``ids`` is the graph's input."""

    table: str
    scale: float = 1.0


class RMSNorm(Op, tag="rms_norm"):
    """out = x / sqrt(mean(x^2) + eps) * gain, over the whole row; the gain is ``gain + 1`` under ``plus_one``."""

    x: str
    gain: str
    eps: float
    plus_one: bool = False


class LayerNorm(Op, tag="layer_norm"):
    """out = (x - mean(x)) / sqrt(var(x) + eps) * gain + bias, over the whole row; the variance is the biased one."""

    x: str
    gain: str
    eps: float
    bias: str | None = None


class HeadNorm(Op, tag="head_norm"):
    """RMSNorm of each head of a row of queries or keys, before they are rotated.

    ``over`` tells what the mean is taken over: each ``head``, with one gain of [head_dim] for all of them, or the whole
    ``row`` of heads*head_dim, with a gain of as many.
    """

    x: str
    gain: str
    eps: float
    heads: int
    head_dim: int
    over: Literal["head", "row"] = "head"
    plus_one: bool = False


class Linear(Op, tag="linear"):
    """out = x @ weight[rows]^T + bias; ``weight`` is [out_features, in_features], ``rows`` None for all of them."""

    x: str
    weight: str
    bias: str | None = None
    rows: tuple[int, int] | None = None


class Rope(Op, tag="rope"):
    """Rotary position embedding on each head of x, pairing element i with i + n/2 of the first ``n`` elements.

    n is ``rotary_dim``, head_dim if None; the rest of a head stays as it is. The factors are the graph's rotary table
    number ``table``: row ``pos`` holds cos then sin, n/2 values each.
    """

    x: str
    heads: int
    head_dim: int
    rotary_dim: int | None = None
    table: int = 0


class Attention(Op, tag="attention"):
    """Causal grouped-query attention of this step's rows over the cache and themselves.

    q is [tokens, heads*head_dim], k and v [tokens, kv_heads*head_dim]; k (rotated) and v are appended to the cache of
    ``layer``. Scores are q.k*scale, softmax over all positions <= the row's own.

    Attributes
    ----------
    window
        Positions that a row sees, itself the last of them; None for all.
    softcap
        Scores become softcap * tanh(score / softcap); None leaves them.
    """

    q: str
    k: str
    v: str
    layer: int
    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    window: int | None = None
    softcap: float | None = None


class Add(Op, tag="add"):
    """out = a + b * scale (a residual connection)."""

    a: str
    b: str
    scale: float = 1.0


class GatedMul(Op, tag="gated_mul"):
    """out = activation(gate) * up."""

    gate: str
    up: str
    activation: Activation = "silu"


class Logits(Op, tag="logits"):
    """out = softcap(last row of (x @ weight^T + bias) * scale): the next token's distribution. Always the last op."""

    x: str
    weight: str
    bias: str | None = None
    scale: float = 1.0
    softcap: float | None = None


AnyOp = Embed | RMSNorm | LayerNorm | HeadNorm | Linear | Rope | Attention | Add | GatedMul | Logits


class RopeTable(Record):
    """How to make a cos/sin table. ``spec`` is the model config's own rope fields, as sorted (key, JSON) pairs.

    The table is made by the checkpoint's HuggingFace rotary module in float32 (the kernel computes no angles); this
    record only says which one, so that two graphs with different tables have different digests. ``head_dim`` are the
    elements of a head that turn; ``layer_type`` is HuggingFace's name of the layers that use it, where there are
    several tables.
    """

    head_dim: int
    spec: tuple[tuple[str, str], ...]
    layer_type: str = ""


class Graph(Record):
    """One decode step of one model.

    Attributes
    ----------
    family
        HuggingFace ``model_type`` it was recognised from.
    hidden, vocab, layers
        Row length of the residual stream, rows of the embedding table, attention layers.
    context_limit
        Most positions the model was made for.
    ropes
        Rotary tables, by the number that a Rope op names.
    tensors
        Every checkpoint tensor the ops name, sorted by name; tied weights appear once.
    """

    family: str
    hidden: int
    vocab: int
    layers: int
    context_limit: int
    ropes: tuple[RopeTable, ...]
    tensors: tuple[WeightTensor, ...]
    ops: tuple[AnyOp, ...]
    version: Literal[1] = GRAPH_VERSION

    def tensor(self, name: str) -> WeightTensor:
        """The tensor called ``name``; KeyError if the graph has none."""
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise KeyError(name)

    def to_json(self) -> bytes:
        """Canonical JSON: sorted keys, no white space."""
        return msgspec.json.encode(self, order="sorted")

    @classmethod
    def from_json(cls, data: bytes) -> Graph:
        """Read what ``to_json`` wrote; ``msgspec.MsgspecError`` on anything else."""
        return msgspec.json.decode(data, type=cls)

    def digest(self) -> str:
        """sha256 of the canonical JSON, in hex."""
        return hashlib.sha256(self.to_json()).hexdigest()
