"""How far an arm's predictions are from the reference's: what is kept of each, and the figures over many.

Legend: W windows, P predictions of a window (of each token from those before it), V the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from amk.ir.record import Record
from amk.parity.compare import logit_range

_AT_ONCE: Final = 64
"""Rows of logits that are compared at once, in float64."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """What is kept of an arm's predictions; each an array of one shape, [P] of a window, [W, P] of a text.

    Attributes
    ----------
    loss
        -log p(token), nats.
    agrees
        1 where the greatest logit is at the reference's token, else 0.
    kl
        KL(reference || arm), nats.
    logit_range
        r.
    """

    loss: Floats
    agrees: Floats
    kl: Floats
    logit_range: Floats

    def of(self, windows: NDArray[np.int64]) -> Scores:
        """Those of some of the windows."""
        return join([self], lambda found: found[0][windows])


class Figures(Record):
    """An arm on some of the text, against the reference on the same.

    Attributes
    ----------
    predictions
        Tokens predicted from those before them in their window.
    perplexity, perplexity_ratio
        exp of the mean of -log p(token), and that over the reference's.
    ratio_error
        Standard error of the ratio, from how it differs between windows; None of a single window.
    agreement
        Share of predictions whose greatest logit is at the reference's token.
    kl_mean, kl_p99
        KL(reference || arm) in nats: mean and 99th percentile.
    logit_range_p99, logit_range_max
        Of r as decode parity has it.
    """

    predictions: int
    perplexity: float
    perplexity_ratio: float
    ratio_error: float | None
    agreement: float
    kl_mean: float
    kl_p99: float
    logit_range_p99: float
    logit_range_max: float


def compare(logits_PV: Tensor, reference_PV: Tensor, tokens_P: Tensor) -> Scores:
    """Score an arm's logits.

    Parameters
    ----------
    logits_PV, reference_PV
        Logits of arm and reference behind the same tokens, float32.
    tokens_P
        The tokens that the text has there, int64.
    """
    found = []
    for low in range(0, len(tokens_P), _AT_ONCE):
        rows = slice(low, low + _AT_ONCE)
        ours, theirs = logits_PV[rows].double(), reference_PV[rows].double()
        log_p, log_q = theirs.log_softmax(dim=1), ours.log_softmax(dim=1)
        found.append(
            Scores(
                loss=-log_q.gather(1, tokens_P[rows, None])[:, 0].numpy(),
                agrees=(ours.argmax(dim=1) == theirs.argmax(dim=1)).double().numpy(),
                kl=(log_p.exp() * (log_p - log_q)).sum(dim=1).numpy(),
                logit_range=logit_range(ours, theirs).numpy(),
            )
        )
    return join(found, np.concatenate)


def figures(scores: Scores, reference: Scores) -> Figures:
    """The figures of ``scores`` [W, P]; ``reference`` are the reference's own at the same tokens."""
    excess_W = (scores.loss - reference.loss).mean(axis=1)
    ratio = float(np.exp(excess_W.mean()))
    return Figures(
        predictions=scores.loss.size,
        perplexity=float(np.exp(scores.loss.mean())),
        perplexity_ratio=ratio,
        ratio_error=ratio * float(excess_W.std(ddof=1)) / math.sqrt(excess_W.size) if excess_W.size > 1 else None,
        agreement=float(scores.agrees.mean()),
        kl_mean=float(scores.kl.mean()),
        kl_p99=float(np.percentile(scores.kl, 99)),
        logit_range_p99=float(np.percentile(scores.logit_range, 99)),
        logit_range_max=float(scores.logit_range.max()),
    )


def join(scores: Sequence[Scores], how: Callable[[list[Floats]], Floats]) -> Scores:
    """One of several, each array made of theirs by ``how``."""
    return Scores(**{field.name: how([getattr(one, field.name) for one in scores]) for field in fields(Scores)})
