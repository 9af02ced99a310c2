"""The tensors of a checkpoint against those of its graph: each is read, known to be harmless, or refused by name."""

from __future__ import annotations

import re

from amk.frontend.checkpoint import Checkpoint
from amk.frontend.errors import (
    TensorDtypeError,
    TensorMissingError,
    TensorShapeError,
    UnreadTensorError,
    UntiedHeadError,
)
from amk.frontend.tensors import FLOAT_DTYPES, TensorInfo
from amk.ir.graph import Embed, Graph, Logits

HARMLESS = {
    r"(.*\.)?rotary_emb\.inv_freq": "a buffer that older releases of transformers saved; it is made from the config",
    r"(.*\.)?self_attn\.(bias|masked_bias)": "a causal mask that older releases of transformers saved",
}
"""Tensors that a checkpoint may hold though the model does not read them, by pattern, and why that is right."""

HEAD = "lm_head.weight"


def match_tensors(graph: Graph, checkpoint: Checkpoint) -> dict[str, TensorInfo]:
    """The checkpoint's tensor for each tensor of ``graph``.

    Raises
    ------
    TensorMissingError, TensorShapeError, TensorDtypeError
        A tensor that the graph needs is not there, or is another.
    UnreadTensorError
        A tensor is there that the graph does not read.
    UntiedHeadError
        A head is stored though the config ties it to the embedding, and the two differ.
    """
    index = checkpoint.tensor_index()
    matched = {}
    for needed in graph.tensors:
        info = index.get(needed.name)
        if info is None:
            raise TensorMissingError(tensor=needed.name, source=checkpoint.name, fix=_fix(needed.name))
        if info.shape != needed.shape:
            raise TensorShapeError(
                tensor=info.name, found=list(info.shape), file=info.file, expected=list(needed.shape)
            )
        if info.dtype not in FLOAT_DTYPES:
            raise TensorDtypeError(tensor=info.name, dtype=info.dtype, file=info.file)
        matched[needed.name] = info
    unread = [name for name in sorted(index) if name not in matched and not _harmless(name)]
    if HEAD in unread and _is_tied(graph):
        _check_head(graph, checkpoint, index[HEAD])
        unread.remove(HEAD)
    if unread:
        shown = ", ".join(unread[:5]) + (" ..." if len(unread) > 5 else "")
        raise UnreadTensorError(source=checkpoint.name, count=len(unread), tensors=shown)
    return matched


def _harmless(name: str) -> bool:
    return any(re.fullmatch(pattern, name) for pattern in HARMLESS)


def _table(graph: Graph) -> str:
    return next(op.table for op in graph.ops if isinstance(op, Embed))


def _is_tied(graph: Graph) -> bool:
    return any(isinstance(op, Logits) and op.weight == _table(graph) for op in graph.ops)


def _check_head(graph: Graph, checkpoint: Checkpoint, head: TensorInfo) -> None:
    """A stored copy of the embedding is only a copy; anything else would be ignored weights."""
    import torch

    table = _table(graph)
    if not torch.equal(checkpoint.load(HEAD), checkpoint.load(table)):
        raise UntiedHeadError(tensor=HEAD, file=head.file, table=table)


def _fix(tensor: str) -> str:
    if tensor == HEAD:
        return "if the model's head is its embedding, config.json must say tie_word_embeddings: true"
    return "take weights and config.json from one place; the names are those of transformers' state dict"
