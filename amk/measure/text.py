"""The text that a format's cost is measured on, and its cut into windows.

The bundled one is in ``texts/``; its README says whose it is and why it may be shared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

from amk.errors import BadOptionError, UnreadableInputError
from amk.ir.record import Record

BUNDLED: Final = "passages of Austen's novels and Newton's Opticks, public domain"

TOKENS: Final = 8192
CONTEXT: Final = 512
"""Tokens in all and of a window, where nothing else is asked for: minutes for 135 million weights on two cores."""


class Text(Record):
    """Which text it was.

    Attributes
    ----------
    sha256
        Of its bytes, in hex.
    """

    name: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Token ids that a model sees at once, knowing nothing of what stands before them.

    Attributes
    ----------
    first, end
        Which of the text's tokens these are, ``end`` excluded.
    ids
        The tokenizer's token for the beginning of a text, where it has one, and those tokens.
    """

    first: int
    end: int
    ids: tuple[int, ...]


def read_text(path: Path | None) -> tuple[Text, str]:
    """What is in ``path``, and what to call it; the bundled text where ``path`` is None.

    Raises
    ------
    UnreadableInputError
        It cannot be opened, or is not UTF-8.
    """
    try:
        data = path.read_bytes() if path else (resources.files("amk.measure") / "texts" / "passages.txt").read_bytes()
        content = data.decode("utf-8")
    except OSError as error:
        why = error.strerror or str(error)
        raise UnreadableInputError(path=path, why=why, fix="pass the path of a text file") from error
    except UnicodeDecodeError as error:
        why = f"byte {error.start} is not of UTF-8 text"
        raise UnreadableInputError(path=path, why=why, fix="pass plain text in UTF-8") from error
    name = str(path) if path else BUNDLED
    return Text(name=name, sha256=hashlib.sha256(data).hexdigest(), bytes=len(data)), content


def encode(tokenizer: Any, content: str) -> tuple[list[int], list[int]]:
    """What the tokenizer sets before a text (one token or none), and the text's own token ids."""
    ids = tokenizer(content, add_special_tokens=False, verbose=False)["input_ids"]
    whole = tokenizer(content, verbose=False)["input_ids"]
    begins = bool(whole) and whole[0] == tokenizer.bos_token_id and whole[:1] != ids[:1]
    return whole[:1] if begins else [], ids


def cut(start: Sequence[int], ids: Sequence[int], *, context: int, tokens: int) -> list[Window]:
    """Disjoint windows of ``context`` tokens, at most ``tokens`` in all, spread evenly over the text.

    Parameters
    ----------
    start
        Token ids that each window begins with; they count.
    ids
        Of the text.

    Raises
    ------
    BadOptionError
        There is not one window: of ``tokens``, or in the text.
    """
    if tokens < context:
        why = f"a window has {context} tokens"
        raise BadOptionError(option="tokens", value=tokens, why=why, fix=f"use {context} or more, or lower context")
    own = context - len(start)
    there = len(ids) // own
    if not there:
        why = f"{len(ids)} tokens are not a window of {own}"
        raise BadOptionError(
            option="text", value=f"{len(ids)} tokens", why=why, fix="use a longer one, or lower context"
        )
    wanted = min(tokens // context, there)
    firsts = [there * number // wanted * own for number in range(wanted)]
    return [Window(first=first, end=first + own, ids=(*start, *ids[first : first + own])) for first in firsts]
