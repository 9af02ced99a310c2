"""amk against the oracle, HuggingFace at float32: token by token, and how far the logits are apart.

The measure of distance is the range r = max(d) - min(d) of d = logits_amk - logits_oracle over the vocabulary: adding a
constant to all logits changes nothing that decoding can see, so it must not count. A token may differ only where the
oracle itself cannot tell: its margin between the two tokens is at most r, and r is within the contract's bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec
import torch
from torch import Tensor

from amk.ir.buffers import Quantization
from amk.ir.record import Record
from amk.runtime.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

TIE_FRACTION_MAX = 0.005
"""At most this share of the tokens compared may be ties."""


class Tie(Record):
    """A token on which the oracle's own preference is smaller than the logits' distance."""

    position: int
    amk: int
    oracle: int
    margin: float
    logit_range: float


class PromptParity(Record):
    """One prompt's comparison.

    Attributes
    ----------
    compared
        Tokens compared, each against the oracle on the same prefix.
    first_divergence
        Index of the first token that differs, tie or not; None if none does.
    logit_range_max, relative_error_median, relative_error_max
        Of r, and of ||d|| / ||oracle||, over the positions compared.
    failure
        Why this prompt fails; empty when it passes.
    """

    name: str
    prompt_tokens: int
    compared: int
    first_divergence: int | None
    ties: tuple[Tie, ...]
    logit_range_max: float
    relative_error_median: float
    relative_error_max: float
    failure: str = ""


class ParityReport(Record):
    """The verdict over all prompts, and what it was measured with."""

    verdict: Literal["pass", "fail"]
    failure: str
    tokens: int
    ties: int
    logit_range_max: float
    logit_range_bound: float
    prompts: tuple[PromptParity, ...]

    def to_json(self) -> bytes:
        """Canonical JSON."""
        return msgspec.json.encode(self, order="sorted")


class Oracle(Protocol):
    """Logits of a whole sequence at once."""

    def logits(self, ids: Sequence[int]) -> Tensor:
        """[len(ids), vocab] float32: row i is the distribution behind ids[:i + 1]."""


class HuggingFaceOracle:
    """The checkpoint in its HuggingFace class at float32, weights as amk packs them, upcast."""

    def __init__(
        self, config: dict[str, Any], load: Callable[[str], Tensor], *, quantization: Quantization | None = None
    ) -> None:
        from amk.frontend.oracle import float32_model

        self.model = float32_model(config, load, quantization=quantization)

    def logits(self, ids: Sequence[int]) -> Tensor:
        with torch.no_grad():
            rows: Tensor = self.model(torch.tensor([list(ids)])).logits[0]
        return rows.to(torch.float32)


def compare(
    session: Session, oracle: Oracle, prompts: Sequence[tuple[str, Sequence[int]]], *, tokens: int, bound: float
) -> Iterator[PromptParity]:
    """Decode each prompt with amk and hold every token and every logit against the oracle.

    amk decodes freely, its own tokens fed back; the oracle then sees the whole sequence, so each of its rows is the
    answer to the same prefix. Were every token equal, the oracle's own greedy decoding would be this very sequence.

    Parameters
    ----------
    prompts
        (name, token ids) pairs.
    tokens
        New tokens a prompt; end of text does not stop the comparison.
    bound
        The contract's ``logit_range_max``.
    """
    for name, prompt in prompts:
        chosen, logits = _decode(session, list(prompt), tokens)
        rows = oracle.logits([*prompt, *chosen[:-1]])[len(prompt) - 1 :]
        yield _judge(name, len(prompt), chosen, torch.stack(logits), rows, bound)


def summarise(prompts: Sequence[PromptParity], *, bound: float) -> ParityReport:
    """One verdict of all prompts; no prompts and no tokens are a failure, not a pass."""
    tokens = sum(prompt.compared for prompt in prompts)
    ties = sum(len(prompt.ties) for prompt in prompts)
    failed = [prompt for prompt in prompts if prompt.failure]
    failure = ""
    if not tokens:
        failure = "nothing was compared"
    elif failed:
        failure = f"{len(failed)} of {len(prompts)} prompts fail; {failed[0].name}: {failed[0].failure}"
    elif ties > TIE_FRACTION_MAX * tokens:
        failure = f"{ties} of {tokens} tokens are ties, more than {TIE_FRACTION_MAX:.1%}"
    return ParityReport(
        verdict="fail" if failure else "pass",
        failure=failure,
        tokens=tokens,
        ties=ties,
        logit_range_max=max((prompt.logit_range_max for prompt in prompts), default=0.0),
        logit_range_bound=bound,
        prompts=tuple(prompts),
    )


def _decode(session: Session, prompt: list[int], tokens: int) -> tuple[list[int], list[Tensor]]:
    """Greedy tokens and the logits behind each."""
    chosen = [session.prefill(prompt, new_tokens=tokens)]
    logits = [session.logits()]
    for _ in range(tokens - 1):
        chosen += session.decode(1)
        logits.append(session.logits())
    return chosen, logits


def logit_range(ours_NV: Tensor, oracle_NV: Tensor) -> Tensor:
    """r of each row, float64 [N]."""
    difference_NV = ours_NV.double() - oracle_NV.double()
    return difference_NV.amax(dim=1) - difference_NV.amin(dim=1)


def _judge(
    name: str, prompt_tokens: int, chosen: list[int], ours_NV: Tensor, oracle_NV: Tensor, bound: float
) -> PromptParity:
    range_N = logit_range(ours_NV, oracle_NV)
    relative_N = (ours_NV.double() - oracle_NV.double()).norm(dim=1) / oracle_NV.double().norm(dim=1)
    ties: list[Tie] = []
    failure = ""
    for index, (token, r) in enumerate(zip(chosen, range_N.tolist(), strict=True)):
        wanted = int(oracle_NV[index].argmax())
        margin = float(oracle_NV[index, wanted] - oracle_NV[index, token])
        failure = _fault(index, token, int(ours_NV[index].argmax()), wanted, margin, r, bound)
        if failure:
            break
        if token != wanted:
            ties.append(Tie(position=index, amk=token, oracle=wanted, margin=margin, logit_range=r))
    differing = (i for i, token in enumerate(chosen) if token != int(oracle_NV[i].argmax()))
    return PromptParity(
        name=name,
        prompt_tokens=prompt_tokens,
        compared=len(chosen),
        first_divergence=next(differing, None),
        ties=tuple(ties),
        logit_range_max=float(range_N.max()),
        relative_error_median=float(relative_N.median()),
        relative_error_max=float(relative_N.max()),
        failure=failure,
    )


def _fault(index: int, token: int, own: int, wanted: int, margin: float, r: float, bound: float) -> str:
    """What is wrong with one token, or nothing. NaN fails every comparison below, and so is a fault."""
    if not r <= bound:
        return f"token {index}: the logits' range r = {r:.3g} is above the bound {bound:.3g}"
    if token != own:
        return f"token {index}: amk chose {token}, but its own logits say {own}"
    if token != wanted and not margin <= min(r, bound):
        return f"token {index}: amk chose {token}, the oracle {wanted} by a margin of {margin:.3g} against r = {r:.3g}"
    return ""
