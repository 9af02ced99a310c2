"""Text that others wrote, made fit for a page: names, sources and messages are hostile until they have been here.

What a terminal or a browser would obey rather than show (control characters, changes of writing direction, lone
surrogates) is written as its code; HTML is then Jinja's to escape, and Markdown is escaped below.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

CUT: Final = " ... (cut)"

_MARKS: Final = re.compile(r"([\\`*_\[\]<#|~&@$]|:(?=//)|(?<=www)\.|(?<=mailto):)", re.IGNORECASE)
"""All that Markdown gives a meaning behind the start of a line: links, HTML, entities, tables, bare addresses."""


def printable(text: str, *, lines: bool = False) -> str:
    """``text`` with what is obeyed and not shown written as its code; line ends and tabs stay with ``lines``."""
    kept = "\n\t" if lines else ""
    return "".join(
        char if char in kept or unicodedata.category(char)[0] not in "CZ" or char == " " else _code(char)
        for char in (text.replace("\r\n", "\n") if lines else text)
    )


def shortened(text: str, most: int) -> str:
    """``text``, or its first ``most`` characters and a word that there were more."""
    return text if len(text) <= most else text[:most] + CUT


def markdown(text: str) -> str:
    """``text`` as words within a line of Markdown: nothing in it is a link, a tag, a mark or a table's bar."""
    return _MARKS.sub(r"\\\1", printable(text))


def code(text: str) -> str:
    """``text`` as inline code, which may stand in a table."""
    shown = printable(text).replace("|", "\\u007c")
    ticks = _fence(shown, at_least=1)
    padded = f" {shown} " if shown.startswith(("`", " ")) or shown.endswith(("`", " ")) else shown
    return f"{ticks}{padded}{ticks}" if shown else "(empty)"


def block(text: str, language: str = "") -> str:
    """``text`` as a fenced block of its own, whatever fences are in it."""
    shown = printable(text, lines=True).rstrip("\n")
    fence = _fence(shown, at_least=3)
    return f"{fence}{language}\n{shown}\n{fence}"


def _fence(text: str, *, at_least: int) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    return "`" * max(at_least, longest + 1)


def _code(char: str) -> str:
    point = ord(char)
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"
