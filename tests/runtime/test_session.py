"""Sessions and generation on a backend that counts: the next token is always one more than the last."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from amk.errors import BadOptionError, ContextOverflowError, EmptyPromptError, NoTokenizerError, TokenIdError
from amk.runtime.errors import SupersededError, TooManyEosError
from amk.runtime.generate import Generator
from amk.runtime.session import Session, passes

VOCAB = 100


class Counting:
    """A backend whose model says last token + 1, and which stops at the step after an end-of-text token."""

    def __init__(self, *, max_context: int = 32, tokens_per_pass: int = 4, steps_at_once: int = 3) -> None:
        self.max_context = max_context
        self.tokens_per_pass = tokens_per_pass
        self.eos_slots = 2
        self.steps_at_once = steps_at_once
        self.rows: dict[int, int] = {}
        self.launches: list[tuple[int, int, int]] = []
        self.fail_next = False

    def begin(self, prompt: list[int], eos: list[int]) -> None:
        self.rows = dict(enumerate(prompt))
        self.length = len(prompt)
        self.eos = eos
        self.stop = False

    def enter(self, ids: list[int]) -> None:
        self.stop = False
        self.forced = ids

    def run(self, *, pos: int, tokens: int, steps: int) -> Iterator[int]:
        if self.fail_next:
            self.fail_next = False
            raise KeyboardInterrupt
        self.launches.append((pos, tokens, steps))
        for step in range(steps):
            if self.stop:
                return
            following = pos + (step + 1) * tokens
            assert following <= self.max_context
            if following >= self.length:
                last = self.rows[following - 1]
                self.rows[following] = (last + 1) % VOCAB
                self.stop = self.rows[following] in self.eos
            if (step + 1) % self.steps_at_once == 0 or step + 1 == steps or self.stop:
                yield step + 1

    def token(self, position: int) -> int:
        return self.rows[position]

    def logits(self) -> torch.Tensor:
        return torch.zeros(VOCAB)


@pytest.fixture
def backend() -> Counting:
    return Counting()


@pytest.fixture
def session(backend: Counting) -> Session:
    return Session(backend, vocab=VOCAB, context_limit=64)


@given(rows=st.integers(1, 200), most=st.integers(1, 8))
def test_passes_cover_every_row_once(rows: int, most: int) -> None:
    cut = passes(rows, most)
    assert sum(steps * tokens for steps, tokens in cut) == rows
    assert all(steps >= 1 and 1 <= tokens <= most for steps, tokens in cut)
    assert len(cut) <= 2


def test_a_prompt_goes_in_full_passes_and_a_rest(session: Session, backend: Counting) -> None:
    assert session.prefill([5] * 10 + [7]) == 8
    assert backend.launches == [(0, 4, 2), (8, 3, 1)]
    assert session.position == 11


def test_decode_stops_at_end_of_text(session: Session) -> None:
    assert session.prefill([1], eos=[5]) == 2
    assert list(session.decode(10)) == [3, 4, 5]
    assert list(session.decode(10)) == []


def test_decode_gives_exactly_what_was_asked_for(session: Session) -> None:
    session.prefill([1])
    assert list(session.decode(7)) == [3, 4, 5, 6, 7, 8, 9]
    assert session.position == 8


@pytest.mark.parametrize(("prompt", "new", "fits"), [(32, 1, True), (30, 3, True), (30, 4, False), (33, 1, False)])
def test_the_last_token_takes_no_position(session: Session, prompt: int, new: int, fits: bool) -> None:
    if fits:
        session.prefill([1] * prompt, new_tokens=new)
        list(session.decode(new - 1))
        return
    with pytest.raises(ContextOverflowError, match="compiled for 32") as caught:
        session.prefill([1] * prompt, new_tokens=new)
    assert "the model allows 64" in str(caught.value)


def test_refusals_name_the_token_and_the_limit(session: Session) -> None:
    with pytest.raises(EmptyPromptError):
        session.prefill([])
    with pytest.raises(TokenIdError, match="token id 100 at position 1"):
        session.prefill([1, 100])
    with pytest.raises(TokenIdError, match="token id -1 at position 0"):
        session.prefill([-1])
    with pytest.raises(TooManyEosError, match="3 end-of-text"):
        session.prefill([1], eos=[1, 2, 3])


def test_a_refused_prompt_leaves_the_open_sequence_alone(session: Session) -> None:
    session.prefill([1])
    with pytest.raises(EmptyPromptError):
        session.prefill([])
    assert list(session.decode(1)) == [3]


def test_an_interrupt_leaves_the_model_usable(session: Session, backend: Counting) -> None:
    session.prefill([1])
    backend.fail_next = True
    with pytest.raises(KeyboardInterrupt):
        list(session.decode(3))
    assert session.prefill([20]) == 21
    assert list(session.decode(2)) == [22, 23]


def test_a_stream_that_was_overtaken_says_so(session: Session) -> None:
    session.prefill([1])
    stream = session.decode(9)
    next(stream)
    session.prefill([50])
    with pytest.raises(SupersededError):
        list(stream)


class Words:
    """A tokenizer whose word n is ``<n>``."""

    chat_template: str | None = None

    def __call__(self, text: str, **_: object) -> dict[str, list[int]]:
        return {"input_ids": [int(word) for word in text.split()]}

    def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
        return " ".join(f"<{token}>" for token in ids)

    def apply_chat_template(self, messages: list[dict[str, str]], **_: object) -> str:
        return " ".join(message["content"] for message in messages) + " 9"


@pytest.fixture
def generator(session: Session) -> Generator:
    return Generator(session, tokenizer=Words(), eos=frozenset({15}), source="a test")


def test_generate_from_text_and_from_ids(generator: Generator) -> None:
    answer = generator.generate("10 11")
    assert answer.token_ids == (12, 13, 14, 15)
    assert answer.text == "<12> <13> <14> <15>"
    assert answer.finish_reason == "eos"
    assert answer.timings.prompt_tokens == 2
    assert answer.timings.decode_tokens == 3
    assert generator.generate([10, 11]).token_ids == answer.token_ids


def test_generate_stops_at_its_limits(generator: Generator) -> None:
    short = generator.generate([20], max_new_tokens=2)
    assert (short.token_ids, short.finish_reason) == ((21, 22), "length")
    full = generator.generate([20])
    assert (len(full.token_ids), full.finish_reason) == (32, "length")


def test_end_of_text_can_be_chosen(generator: Generator) -> None:
    assert generator.generate([10], eos_token_id=12).token_ids == (11, 12)
    assert generator.generate([10], eos_token_id=[11, 13]).token_ids == (11,)
    assert len(generator.generate([10], eos_token_id=[], max_new_tokens=9).token_ids) == 9


def test_chat_messages_need_a_chat_template(generator: Generator) -> None:
    messages = [{"role": "user", "content": "3 4"}]
    with pytest.raises(NoTokenizerError, match="no chat template"):
        generator.generate(messages)
    generator.tokenizer.chat_template = "..."
    try:
        assert generator.generate(messages, max_new_tokens=1).token_ids == (10,)
    finally:
        del generator.tokenizer.chat_template


def test_nothing_to_generate_is_refused(generator: Generator) -> None:
    with pytest.raises(BadOptionError, match="max_new_tokens=0"):
        generator.generate([1], max_new_tokens=0)
    for empty in ("", []):
        with pytest.raises(EmptyPromptError):
            generator.generate(empty)


def test_without_a_tokenizer_ids_still_work(session: Session) -> None:
    generator = Generator(session, tokenizer=None, eos=frozenset(), source="a test")
    assert generator.generate([1], max_new_tokens=2).token_ids == (2, 3)
    with pytest.raises(NoTokenizerError, match="a test carries no tokenizer, so text"):
        generator.generate("hello")


def test_a_stream_is_the_same_tokens(session: Session) -> None:
    generator = Generator(session, tokenizer=None, eos=frozenset({8}), source="a test")
    stream: Iterator[int] = (token.id for token in generator.stream([4]))
    assert list(stream) == [5, 6, 7, 8]


def test_dropping_a_decode_early_goes_on_from_what_was_taken(session: Session, backend: Counting) -> None:
    session.prefill([1])
    stream = session.decode(9)
    assert [next(stream), next(stream)] == [3, 4]
    stream.close()
    assert session.position == 3
    assert backend.forced == [4]
    assert list(session.decode(3)) == [5, 6, 7]


def test_decoding_past_the_context_is_refused(session: Session, backend: Counting) -> None:
    session.prefill([1] * 30)
    with pytest.raises(ContextOverflowError, match="compiled for 32"):
        list(session.decode(3))
    assert len(list(session.decode(2))) == 2
