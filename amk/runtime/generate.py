"""From a prompt to text: encoding, streaming, end of text, timings."""

from __future__ import annotations

import time
from collections import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from amk.errors import BadOptionError, EmptyPromptError, NoTokenizerError
from amk.runtime.session import Session

Message = Mapping[str, str]
Prompt = str | Sequence[int] | Sequence[Message]
FinishReason = Literal["eos", "length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Wall-clock seconds: the prompt up to the first new token, and the tokens after it."""

    prompt_tokens: int
    prefill_s: float
    decode_tokens: int
    decode_s: float

    @property
    def tokens_per_s(self) -> float:
        """Tokens after the first, a second; 0 when there were none."""
        return self.decode_tokens / self.decode_s if self.decode_s else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What a model answered.

    Attributes
    ----------
    text
        The new tokens decoded, special tokens left out; empty when there is no tokenizer.
    token_ids
        The new tokens, the end-of-text token included where there was one.
    finish_reason
        ``eos``, or ``length`` when max_new_tokens or the context was reached.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    timings: Timings


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One new token as it is made, and the text that it completes (empty in the middle of a character)."""

    id: int
    text: str


class Generator:
    """Turns prompts into text on one session.

    Parameters
    ----------
    session
        Where the tokens come from.
    tokenizer
        A HuggingFace tokenizer, or None when prompts are token ids.
    eos
        The checkpoint's own end-of-text ids.
    source
        What to call the checkpoint in errors.
    """

    def __init__(self, session: Session, *, tokenizer: Any | None, eos: frozenset[int], source: str) -> None:
        self.session = session
        self.tokenizer = tokenizer
        self.eos = eos
        self.source = source

    def encode(self, prompt: Prompt) -> list[int]:
        """Token ids of a prompt: text as it is, chat messages through the chat template, ids unchanged.

        Raises
        ------
        EmptyPromptError, NoTokenizerError
        """
        if len(prompt) == 0:
            raise EmptyPromptError
        if not isinstance(prompt, str) and not isinstance(prompt[0], Mapping):
            return [int(token) for token in prompt]  # type: ignore[arg-type]  # ids: neither text nor messages
        if self.tokenizer is None:
            wanted = "text" if isinstance(prompt, str) else "chat messages"
            raise NoTokenizerError(source=self.source, wanted=wanted)
        if isinstance(prompt, str):
            return list(self.tokenizer(prompt)["input_ids"])
        if not self.tokenizer.chat_template:
            raise NoTokenizerError(source=self.source, wanted="chat messages (its tokenizer has no chat template)")
        text = self.tokenizer.apply_chat_template(list(prompt), tokenize=False, add_generation_prompt=True)
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def stream(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int | None = None,
        eos_token_id: int | Sequence[int] | None = None,
    ) -> abc.Generator[Token, None, None]:
        """Greedy tokens as they are made; parameters and errors are those of ``generate``."""
        ids = self.encode(prompt)
        push = self._detokenize()
        for token in self._tokens(ids, max_new_tokens, self._eos(eos_token_id)):
            yield Token(id=token, text=push(token))

    def generate(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int | None = None,
        eos_token_id: int | Sequence[int] | None = None,
    ) -> Generation:
        """Greedy decoding.

        Parameters
        ----------
        prompt
            Text (encoded as it is), chat messages (``[{"role": ..., "content": ...}]``) or token ids.
        max_new_tokens
            Most tokens to make; None for as many as the context holds.
        eos_token_id
            Ids that end the text instead of the checkpoint's own; an empty list for none.

        Raises
        ------
        EmptyPromptError, TokenIdError, NoTokenizerError, ContextOverflowError, BadOptionError
        """
        start = time.perf_counter()
        prompt_ids = self.encode(prompt)
        eos = self._eos(eos_token_id)
        tokens = self._tokens(prompt_ids, max_new_tokens, eos)
        ids = [next(tokens)]
        first = time.perf_counter()
        ids += tokens
        end = time.perf_counter()
        return Generation(
            text=self.tokenizer.decode(ids, skip_special_tokens=True) if self.tokenizer is not None else "",
            token_ids=tuple(ids),
            finish_reason="eos" if ids[-1] in eos else "length",
            timings=Timings(
                prompt_tokens=len(prompt_ids),
                prefill_s=first - start,
                decode_tokens=len(ids) - 1,
                decode_s=end - first,
            ),
        )

    def _tokens(self, ids: list[int], most: int | None, eos: frozenset[int]) -> Iterator[int]:
        """New tokens up to and with the first in ``eos``, at most ``most``, or as many as the context holds."""
        limit = max(1, self.session.backend.max_context - len(ids) + 1) if most is None else most
        if limit < 1:
            raise BadOptionError(
                option="max_new_tokens", value=limit, why="nothing would be made", fix="pass 1 or more"
            )
        token = self.session.prefill(ids, new_tokens=limit, eos=sorted(eos))
        following = self.session.decode(limit - 1)
        yield token
        if token not in eos:
            yield from following

    def _detokenize(self) -> Callable[[int], str]:
        """Token -> the text that it completes: nothing while a character is unfinished."""
        if self.tokenizer is None:
            return lambda token: ""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise NoTokenizerError(source=self.source, wanted="streaming (its tokenizer has no tokenizer.json)")
        from tokenizers.decoders import DecodeStream

        decoder = DecodeStream(skip_special_tokens=True)
        return lambda token: decoder.step(backend, token) or ""

    def _eos(self, given: int | Sequence[int] | None) -> frozenset[int]:
        if given is None:
            return self.eos
        return frozenset([given] if isinstance(given, int) else given)
