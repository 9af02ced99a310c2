"""Failing inputs as expressions of Python, from the words that a finding has for them.

Only words of the form that the gates use are turned into code; anything else gives none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Final

_TENSOR: Final = re.compile(
    r"(?P<dtype>[a-z]+[0-9_a-z]*)\[(?P<shape>[0-9, ]*)\]"
    r"(?: strides \[(?P<stride>[0-9, ]*)\])?(?: offset (?P<offset>[0-9]+))?"
)
_NUMBER: Final = re.compile(r"-?[0-9][0-9.e+-]*|True|False|None")


class _NoExpressionError(Exception):
    """The words are of another form."""


def expression(words: Sequence[str]) -> str | None:
    """``(data["0"], strided(data["1"], (1, 7), 0), 3)``; None where ``words`` are not all understood.

    Parameters
    ----------
    words
        One an argument: ``float32[7, 33]``, ``float32[7, 33] strides [1, 7] offset 2``, ``3``, ``[float32[2], 1]``.
    """
    scanner = _Scanner()
    try:
        items = [scanner.whole(text) for text in words]
    except _NoExpressionError:
        return None
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


class _Scanner:
    """Counts tensors in the order in which they are saved."""

    def __init__(self) -> None:
        self._place = 0

    def whole(self, text: str) -> str:
        """The expression of one argument."""
        item, end = self._item(text, 0)
        if end != len(text):
            raise _NoExpressionError
        return item

    def _item(self, text: str, start: int) -> tuple[str, int]:
        """An expression, and where its words end."""
        if found := _TENSOR.match(text, start):
            return self._tensor(found), found.end()
        if text.startswith("[", start):
            return self._list(text, start + 1)
        if found := _NUMBER.match(text, start):
            try:
                return repr(ast.literal_eval(found.group())), found.end()
            except (ValueError, SyntaxError):
                raise _NoExpressionError from None
        raise _NoExpressionError

    def _list(self, text: str, at: int) -> tuple[str, int]:
        items: list[str] = []
        while not text.startswith("]", at):
            if items:
                if not text.startswith(", ", at):
                    raise _NoExpressionError
                at += 2
            item, at = self._item(text, at)
            items.append(item)
        return f"[{', '.join(items)}]", at + 1

    def _tensor(self, found: re.Match[str]) -> str:
        saved = f'data["{self._place}"]'
        self._place += 1
        if found["stride"] is None and found["offset"] is None:
            return saved
        stride = f"({found['stride']},)" if found["stride"] else f"{saved}.stride()"
        return f"strided({saved}, {stride}, {found['offset'] or 0})"
