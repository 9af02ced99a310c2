"""The bundled text is what its README says, ships with amk, and any text is cut into disjoint windows."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

import amk
from amk.errors import BadOptionError, UnreadableInputError
from amk.measure.text import BUNDLED, cut, encode, read_text

ROOT = Path(__file__).resolve().parents[2]
README = Path(amk.__file__).parent / "measure" / "texts" / "README.md"


def test_the_bundled_text_is_the_one_that_its_readme_describes() -> None:
    facts, content = read_text(None)
    readme = README.read_text(encoding="utf-8")
    assert f"sha256 {facts.sha256}\n" in readme
    assert f"{facts.bytes:,} bytes" in readme
    assert facts.name == BUNDLED
    assert hashlib.sha256(content.encode()).hexdigest() == facts.sha256
    assert 300_000 < facts.bytes < 400_000


def test_the_bundled_text_is_prose_alone() -> None:
    _, content = read_text(None)
    assert not re.search(r"[_*\[\]<>{}|\t\r]| {2}|\n{3}|gutenberg|pgdp|chapter \w+\n", content, re.IGNORECASE)
    lengths = [len(paragraph) for paragraph in content.split("\n\n")]
    assert sum(lengths) / len(lengths) > 300


def test_the_wheel_carries_text_and_readme() -> None:
    shipped = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {"amk/measure/texts/passages.txt", "amk/measure/texts/README.md"} <= shipped


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_bytes("naïve".encode())
    facts, content = read_text(tmp_path / "own.txt")
    assert (facts.name, facts.bytes, content) == (str(tmp_path / "own.txt"), 6, "naïve")
    (tmp_path / "latin.txt").write_bytes("naïve".encode("latin-1"))
    for name, why in {"none.txt": "No such file", "latin.txt": "byte 2 is not"}.items():
        with pytest.raises(UnreadableInputError, match=why):
            read_text(tmp_path / name)


def test_windows_are_disjoint_and_spread_over_the_text() -> None:
    windows = cut([], range(107), context=10, tokens=45)
    assert [(window.first, window.end) for window in windows] == [(0, 10), (20, 30), (50, 60), (70, 80)]
    assert [window.ids for window in windows] == [tuple(range(w.first, w.end)) for w in windows]
    assert len(cut([], range(107), context=10, tokens=10_000)) == 10


def test_the_token_that_begins_a_text_begins_each_window_and_counts() -> None:
    windows = cut([-1], range(107), context=10, tokens=20)
    assert [window.ids for window in windows] == [(-1, *range(9)), (-1, *range(45, 54))]
    assert [(window.first, window.end) for window in windows] == [(0, 9), (45, 54)]


def test_no_window_at_all() -> None:
    with pytest.raises(BadOptionError, match="tokens=9"):
        cut([], range(107), context=10, tokens=9)
    with pytest.raises(BadOptionError, match="9 tokens are not a window of 10"):
        cut([], range(9), context=10, tokens=10)


class Tokenizer:
    """A token a character, between ``begin`` and ``end``."""

    def __init__(self, begin: list[int], end: list[int]) -> None:
        self.begin, self.end = begin, end
        self.bos_token_id = 1

    def __call__(self, text: str, *, add_special_tokens: bool = True, verbose: bool) -> dict[str, list[int]]:
        ids = [ord(letter) for letter in text]
        return {"input_ids": [*self.begin, *ids, *self.end] if add_special_tokens else ids}


@pytest.mark.parametrize(("begin", "end"), [([], []), ([1], []), ([1], [2]), ([], [2])])
def test_only_a_token_for_the_beginning_is_added(begin: list[int], end: list[int]) -> None:
    assert encode(Tokenizer(begin, end), "ab") == (begin, [97, 98])
