"""One sequence on one backend: which positions are done, and the launches that do the next ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from amk.errors import ContextOverflowError, EmptyPromptError, TokenIdError
from amk.runtime.errors import SupersededError, TooManyEosError

if TYPE_CHECKING:
    from torch import Tensor

    from amk.runtime.backend import Backend


class Session:
    """Runs sequences on ``backend``, one after another.

    A sequence is opened by ``prefill`` and continued by ``decode``. Opening one ends the one before, so whatever became
    of that (an interrupt in the middle of a launch, a dropped stream) does not matter.

    Attributes
    ----------
    position
        Positions whose keys and values are in the cache; also the position of the token chosen last.
    sequence
        Number of the open sequence; a continuation of an older one is refused.
    """

    def __init__(self, backend: Backend, *, vocab: int, context_limit: int) -> None:
        self.backend = backend
        self.vocab = vocab
        self.context_limit = context_limit
        self.position = 0
        self.sequence = 0

    def prefill(self, prompt: Sequence[int], *, new_tokens: int = 1, eos: Sequence[int] = ()) -> int:
        """Open a sequence and process its prompt; the first new token.

        Parameters
        ----------
        prompt
            Token ids, at least one.
        new_tokens
            Tokens that will be asked for in all, so that a sequence that cannot fit is refused before it starts.
        eos
            Ids that end a launch; the first new token is not checked against them.

        Raises
        ------
        EmptyPromptError, TokenIdError, ContextOverflowError, TooManyEosError
        """
        ids = [int(token) for token in prompt]
        self._check(ids, new_tokens, eos)
        self.sequence += 1
        self.position = 0
        self.backend.begin(ids, list(eos))
        self.backend.enter(ids[: self.backend.tokens_per_pass])
        for steps, tokens in passes(len(ids), self.backend.tokens_per_pass):
            for _ in self.backend.run(pos=self.position, tokens=tokens, steps=steps):
                pass
            self.position += steps * tokens
        return self.backend.token(self.position)

    def decode(self, steps: int) -> Iterator[int]:
        """The next tokens of the sequence that is open now, each as soon as it is made.

        At most ``steps`` of them; fewer if one is end of text.

        Raises
        ------
        SupersededError
            Another sequence was opened in the meantime.
        ContextOverflowError
            The context does not hold as many.
        """
        return self._decode(steps, self.sequence)

    def _decode(self, steps: int, sequence: int) -> Iterator[int]:
        start = self.position
        if steps < 1:
            return
        if self.sequence != sequence:
            raise SupersededError
        self._fits(start, steps + 1)
        run = self.backend.run(pos=start, tokens=1, steps=steps)
        try:
            for done in run:
                # Read before the first is handed out: by the time of the next, another sequence may own the backend.
                made = range(self.position + 1, start + done + 1)
                for position, token in [(position, self.backend.token(position)) for position in made]:
                    self.position = position
                    yield token
                    if self.sequence != sequence:
                        raise SupersededError
        except GeneratorExit:
            run.close()
            if self.sequence == sequence:
                # The backend may be further than what was taken of it: go on from there.
                self.backend.enter([self.backend.token(self.position)])
            raise
        finally:
            run.close()

    def force(self, token: int) -> None:
        """Take ``token`` as the one chosen last, whatever the model chose."""
        self.backend.enter([token])

    def logits(self) -> Tensor:
        """[vocab] float32 logits behind the token chosen last."""
        return self.backend.logits()

    def _fits(self, rows: int, new_tokens: int) -> None:
        # The last token is chosen, never processed: it takes no position.
        need, limit = rows + new_tokens - 1, self.backend.max_context
        if need > limit:
            raise ContextOverflowError(
                prompt=rows, new=new_tokens, need=need, limit=limit, model_limit=self.context_limit
            )

    def _check(self, ids: list[int], new_tokens: int, eos: Sequence[int]) -> None:
        if not ids:
            raise EmptyPromptError
        for position, token in enumerate(ids):
            if not 0 <= token < self.vocab:
                raise TokenIdError(token=token, position=position, vocab=self.vocab)
        self._fits(len(ids), new_tokens)
        if len(eos) > self.backend.eos_slots:
            raise TooManyEosError(count=len(eos), most=self.backend.eos_slots)


def passes(rows: int, most: int) -> list[tuple[int, int]]:
    """Launches (steps, tokens a step) that process ``rows`` rows: full passes, then one of what is left over."""
    full, rest = divmod(rows, most)
    return [(steps, tokens) for steps, tokens in ((full, most), (1, rest)) if steps and tokens]
