"""What a weight format costs: a checkpoint on a text, at float32 as it is stored and with its weights in the format.

Every arm is the checkpoint's own HuggingFace class on this processor; only the numbers in it differ. That the compiled
kernel computes what amk's arms do is what decode parity shows (``amk.parity``).

Models are built one at a time, and the reference's logits wait in a temporary folder, so that memory holds one model
and the logits of one window, and the folder 4 bytes x tokens x vocabulary.

Legend: W windows, P predictions of a window (of each token from those before it), V the vocabulary.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from amk.errors import BadOptionError, TokenIdError, UnwritablePathError
from amk.frontend.checkpoint import Checkpoint
from amk.frontend.coverage import match_tensors
from amk.frontend.graphs import graph_for
from amk.frontend.oracle import filled_model, float32_model
from amk.frontend.recognise import tensors
from amk.ir.buffers import Quantization
from amk.ir.graph import Embed, Graph
from amk.ir.quantize import GROUP_SIZES, scales
from amk.ir.record import Record
from amk.measure.errors import NonFiniteLogitsError
from amk.measure.machine import machine
from amk.measure.scores import Figures, Scores, compare, figures, join
from amk.measure.text import CONTEXT, TOKENS, Text, Window, cut, encode, read_text
from amk.target import resolve_target

PERPLEXITY_TOLERANCE: Final = 0.005
"""How far the format's perplexity may be from the reference's, as a share of it."""

SLICES: Final = 6
"""Parts of the text that have figures of their own; the bundled text is six passages."""

REFERENCE: Final = "float32"
"""The name of the arm that the others are held against."""


class ArmQuality(Record):
    """An arm on the whole text, and on each slice of it."""

    arm: str
    whole: Figures
    slices: tuple[Figures, ...]


class Slice(Record):
    """Which of the text's tokens a slice's windows are of: from ``first`` on, before ``end``."""

    first: int
    end: int
    windows: int


class QualityReport(Record):
    """The verdict on the last arm, and all that was measured.

    Attributes
    ----------
    verdict
        ``pass`` or ``fail``.
    failure
        Why it is ``fail``; empty otherwise.
    weights
        Digest of config and weights.
    group_size
        Columns of a matrix that share a scale; 0 for all of a row.
    text_tokens, tokens
        Of the text, and of them those in windows, with the token that begins each window.
    arms
        The reference, HuggingFace's bf16, amk's bf16, and the format where it is another.
    """

    verdict: str
    failure: str
    model: str
    source: str
    weights: str
    dtype: str
    group_size: int
    text: Text
    text_tokens: int
    tokens: int
    context: int
    perplexity_tolerance: float
    slices: tuple[Slice, ...]
    arms: tuple[ArmQuality, ...]
    machine: dict[str, str]


def quality(
    checkpoint: Checkpoint,
    *,
    dtype: str = "w8a16",
    group_size: int = 0,
    tokens: int = TOKENS,
    context: int = CONTEXT,
    text: Path | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> QualityReport:
    """Measure what ``dtype`` costs ``checkpoint`` on a text.

    Parameters
    ----------
    dtype
        Of the weights: ``w8a16`` or ``bf16``.
    group_size
        Columns of a matrix that share a scale; 0 for all of a row.
    tokens
        At most so many are run, in windows spread evenly over the text.
    context
        Tokens of a window.
    text
        A file in UTF-8; None for the bundled text.
    note
        Called with what is done next.

    Raises
    ------
    BadOptionError, UnreadableInputError, NoTokenizerError, TokenIdError
        What was asked for is not possible.
    CheckpointError, UnsupportedModelError
        The checkpoint cannot be read (NonFiniteWeightError: a weight that is to be an integer is no number), or amk
        does not support it.
    NonFiniteLogitsError
    UnwritablePathError
        The reference's logits do not fit into the temporary folder.
    """
    quantization = _quantization(dtype, group_size)
    note("reading the checkpoint")
    graph = graph_for(checkpoint)
    if not 2 <= context <= graph.context_limit:
        why = f"a window has a token and its next, and the model was made for {graph.context_limit} positions"
        raise BadOptionError(option="context", value=context, why=why, fix=f"use 2 to {graph.context_limit}")
    match_tensors(graph, checkpoint)
    facts, content = read_text(text)
    start, ids = encode(checkpoint.tokenizer(), content)
    _check_ids([*start, *ids], graph.vocab)
    windows = cut(start, ids, context=context, tokens=tokens)
    if quantization is not None:
        _check_weights(checkpoint, graph)
    scores = _scores(_arms(checkpoint, quantization), windows, note)
    parts = [part for part in np.array_split(np.arange(len(windows)), SLICES) if part.size]
    arms = tuple(
        ArmQuality(
            arm=name,
            whole=figures(found, scores[REFERENCE]),
            slices=tuple(figures(found.of(part), scores[REFERENCE].of(part)) for part in parts),
        )
        for name, found in scores.items()
    )
    failure = _failure(arms[-1])
    return QualityReport(
        verdict="fail" if failure else "pass",
        failure=failure,
        model=checkpoint.name,
        source=checkpoint.source,
        weights=checkpoint.digest(),
        dtype=dtype,
        group_size=group_size,
        text=facts,
        text_tokens=len(ids),
        tokens=len(windows) * context,
        context=context,
        perplexity_tolerance=PERPLEXITY_TOLERANCE,
        slices=tuple(
            Slice(first=windows[part[0]].first, end=windows[part[-1]].end, windows=part.size) for part in parts
        ),
        arms=arms,
        machine=machine(resolve_target(arch="cpu", target=None)),
    )


def _arms(checkpoint: Checkpoint, quantization: Quantization | None) -> dict[str, Callable[[], Any]]:
    """How each arm's model is made, the reference first and the one that is judged last."""
    config, load = checkpoint.config, checkpoint.load
    arms = {
        REFERENCE: lambda: _as_stored(checkpoint),
        "HF bf16": lambda: filled_model(config, load, dtype=torch.bfloat16, attention="sdpa", device="cpu"),
        "amk bf16": lambda: float32_model(config, load),
    }
    if quantization is not None:
        arms["amk w8a16"] = lambda: float32_model(config, load, quantization=quantization)
    return arms


def _as_stored(checkpoint: Checkpoint) -> Any:
    """The model at float32 with nothing rounded."""
    model = float32_model(checkpoint.config, checkpoint.load)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(checkpoint.load(name))
    return model


def _scores(
    arms: dict[str, Callable[[], Any]], windows: Sequence[Window], note: Callable[[str], None]
) -> dict[str, Scores]:
    """Scores [W, P] of each arm."""
    with tempfile.TemporaryDirectory(prefix="amk-quality-") as folder:
        kept = [Path(folder) / f"{number}.npy" for number in range(len(windows))]
        return {name: _arm_scores(name, make, windows, kept, note) for name, make in arms.items()}


def _arm_scores(
    arm: str, make: Callable[[], Any], windows: Sequence[Window], kept: Sequence[Path], note: Callable[[str], None]
) -> Scores:
    """One arm's; the first leaves its logits in the files ``kept`` for those that follow."""
    note(f"{arm}: taking up the weights")
    gc.collect()  # the modules of the model before this one refer to each other
    model = make()
    found = []
    for number, (window, file) in enumerate(zip(windows, kept, strict=True), start=1):
        note(f"{arm}: window {number} of {len(windows)}")
        ids = torch.tensor(window.ids)
        with torch.no_grad():
            logits_PV = model(ids[None], use_cache=False).logits[0, :-1].float()
        if not logits_PV.isfinite().all():
            raise NonFiniteLogitsError(arm=arm, token=window.first)
        if arm == REFERENCE:
            _keep(logits_PV, file, files=len(kept))
        found.append(compare(logits_PV, torch.from_numpy(np.load(file)), ids[1:]))
    return join(found, np.stack)


def _keep(logits_PV: Tensor, file: Path, *, files: int) -> None:
    try:
        np.save(file, logits_PV.numpy())
    except OSError as error:
        need = files * logits_PV.nbytes / 1e9
        fix = f"set TMPDIR to a folder with {need:.1f} GB free, or use fewer tokens"
        raise UnwritablePathError(path=file, why=error.strerror or error, fix=fix) from error


def _failure(arm: ArmQuality) -> str:
    """Why an arm is refused; empty where it is not."""
    if abs(arm.whole.perplexity_ratio - 1) <= PERPLEXITY_TOLERANCE:
        return ""
    return (
        f"the perplexity of {arm.arm} is {arm.whole.perplexity_ratio:.4f} times that of {REFERENCE}, "
        f"not within {PERPLEXITY_TOLERANCE:.1%}"
    )


def _quantization(dtype: str, group_size: int) -> Quantization | None:
    if dtype not in ("bf16", "w8a16"):
        raise BadOptionError(
            option="dtype", value=dtype, why="there is no such weight format", fix='use "w8a16" or "bf16"'
        )
    if group_size not in (0, *GROUP_SIZES):
        sizes = ", ".join(map(str, GROUP_SIZES))
        why, fix = "there are no such groups", f"use one of {sizes}; or 0, for a scale a row"
        raise BadOptionError(option="group_size", value=group_size, why=why, fix=fix)
    if dtype == "bf16" and group_size:
        raise BadOptionError(option="group_size", value=group_size, why="bf16 has no scales", fix="leave it out")
    return Quantization(group=group_size) if dtype == "w8a16" else None


def _check_ids(ids: Sequence[int], vocab: int) -> None:
    for position, token in enumerate(ids):
        if token >= vocab:
            raise TokenIdError(token=token, position=position, vocab=vocab)


def _check_weights(checkpoint: Checkpoint, graph: Graph) -> None:
    """Meet a weight that is no number before minutes are spent on the arms that are run first."""
    multiplied = {name for op in graph.ops if not isinstance(op, Embed) for name in tensors(op)}
    for tensor in graph.tensors:
        if tensor.name in multiplied and len(tensor.shape) == 2:
            scales(checkpoint.load(tensor.name).float().numpy(), name=tensor.name)
