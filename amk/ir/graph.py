"""The model as ops on tensors: what the frontend recognises and the passes lower.

One ``Graph`` is one decode step over ``tokens`` rows: token ids in, logits of the last row out. Values are single
assignment and named by strings; ops are in execution order. A row of a value is one token's vector. Nothing here
knows of workers, tiles or HuggingFace.
"""

from __future__ import annotations

import hashlib
from typing import Final, Literal

import msgspec

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
    """out[t] = table[ids[t]]; ``ids`` is the graph's input."""

    table: str


class RMSNorm(Op, tag="rms_norm"):
    """out = x / sqrt(mean(x^2) + eps) * gain, over the whole row."""

    x: str
    gain: str
    eps: float


class Linear(Op, tag="linear"):
    """out = x @ weight^T; ``weight`` is [out_features, in_features]."""

    x: str
    weight: str


class Rope(Op, tag="rope"):
    """Rotary position embedding on each head of x, pairing element i with i + head_dim/2.

    The factors are the graph's ``rope`` table: row ``pos`` holds cos then sin, head_dim/2 values each.
    """

    x: str
    heads: int
    head_dim: int


class Attention(Op, tag="attention"):
    """Causal grouped-query attention of this step's rows over the cache and themselves.

    q is [tokens, heads*head_dim], k and v [tokens, kv_heads*head_dim]; k (rotated) and v are appended to the cache of
    ``layer``. Scores are q.k*scale; softmax over all positions <= the row's own.
    """

    q: str
    k: str
    v: str
    layer: int
    heads: int
    kv_heads: int
    head_dim: int
    scale: float


class Add(Op, tag="add"):
    """out = a + b (a residual connection)."""

    a: str
    b: str


class SiluMul(Op, tag="silu_mul"):
    """out = silu(gate) * up."""

    gate: str
    up: str


class Logits(Op, tag="logits"):
    """out = last row of x @ weight^T: the distribution of the next token. Always the last op."""

    x: str
    weight: str


AnyOp = Embed | RMSNorm | Linear | Rope | Attention | Add | SiluMul | Logits


class RopeTable(Record):
    """How to make the cos/sin table. ``spec`` is the model config's own rope fields, as sorted (key, JSON) pairs.

    The table is made by the checkpoint's HuggingFace rotary module in float32 (the kernel computes no angles); this
    record only says which one, so that two graphs with different tables have different digests.
    """

    head_dim: int
    spec: tuple[tuple[str, str], ...]


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
    tensors
        Every checkpoint tensor the ops name, sorted by name; tied weights appear once.
    """

    family: str
    hidden: int
    vocab: int
    layers: int
    context_limit: int
    rope: RopeTable
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
