"""The journal of an audit: what is in it stays, what is torn is dropped, and what does not fit is refused."""

from __future__ import annotations

import logging
import math
import random
from pathlib import Path

import pytest

from amk.contracts.errors import JournalOptionsError, JournalUnreadableError
from amk.contracts.journal import Journal, Terms
from amk.errors import UnwritablePathError
from tests.contracts.fake_judges import ORDERS, judgement

TERMS = Terms(options={"seed": "0", "device": "cpu"}, gates_digest="a" * 64)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def write(path: Path, names: str) -> None:
    with Journal(path, TERMS) as journal:
        for name in names:
            journal.append(name, judgement(name, "break"))


def keys(path: Path) -> set[str]:
    with Journal(path, TERMS) as journal:
        return {name for name in "abcdefghij" if name in journal}


@pytest.mark.parametrize("order", ORDERS)
def test_a_judgement_comes_back_as_it_was(path: Path, order: str) -> None:
    with Journal(path, TERMS) as journal:
        journal.append("k", judgement("k", order))
        assert journal.read("k") == judgement("k", order)
    with Journal(path, TERMS) as journal:
        assert journal.read("k") == judgement("k", order)


def test_figures_that_are_no_number_survive(path: Path) -> None:
    with Journal(path, TERMS) as journal:
        journal.append("k", judgement("k", "infinite"))
    with Journal(path, TERMS) as journal:
        found = journal.read("k").finding("G07")
        assert found is not None
        assert math.isinf(found.figures["kappa"])


def test_it_goes_on_where_it_ended(path: Path) -> None:
    write(path, "ab")
    write(path, "cd")
    assert keys(path) == set("abcd")


@pytest.mark.parametrize("seed", range(8))
def test_cut_anywhere_it_has_every_line_that_was_whole(path: Path, seed: int) -> None:
    write(path, "abcdef")
    data = path.read_bytes()
    cut = random.Random(seed).randrange(len(data) + 1)
    path.write_bytes(data[:cut])
    whole = max(0, data[:cut].count(b"\n") - 1)
    assert keys(path) == set("abcdef"[:whole])
    write(path, "ghij")
    assert keys(path) == set("abcdef"[:whole]) | set("ghij")


def test_a_spoilt_line_costs_its_own_kernel(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(path, "abc")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2][: len(lines[2]) // 2] + b"\n"
    path.write_bytes(b"".join(lines))
    with caplog.at_level(logging.WARNING):
        assert keys(path) == {"a", "c"}
    assert "judged again" in caplog.text


def test_the_last_line_of_a_key_counts(path: Path) -> None:
    with Journal(path, TERMS) as journal:
        journal.append("k", judgement("k", "break"))
        journal.append("k", judgement("k", "conform"))
    with Journal(path, TERMS) as journal:
        assert journal.read("k").status == "conforms"


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        (Terms(options={"seed": "1", "device": "cpu"}, gates_digest="a" * 64), "seed 0, now 1"),
        (Terms(options={"seed": "0"}, gates_digest="a" * 64), "device cpu, now -"),
        (Terms(options={"seed": "0", "device": "cpu"}, gates_digest="b" * 64), "gates aaaaaaaaaaaa, now bbbbbbbbbbbb"),
    ],
)
def test_other_terms_are_refused_by_name(path: Path, terms: Terms, said: str) -> None:
    write(path, "a")
    with pytest.raises(JournalOptionsError, match=said) as raised:
        Journal(path, terms)
    assert "--fresh" in raised.value.remedy
    assert keys(path) == {"a"}
    with Journal(path, terms, fresh=True) as journal:
        assert "a" not in journal


@pytest.mark.parametrize("text", ["my notes\nmore\n", "my notes", '{"a": 1}\n'])
def test_a_file_of_another_kind_is_left_alone(path: Path, text: str) -> None:
    path.write_text(text)
    with pytest.raises(JournalUnreadableError, match=r"journal\.jsonl"):
        Journal(path, TERMS)
    assert path.read_text() == text


def test_an_unwritable_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnwritablePathError, match="file"):
        Journal(tmp_path / "file" / "journal.jsonl", TERMS)


def test_a_key_is_of_the_name_the_sources_and_the_terms() -> None:
    other = Terms(options={"seed": "1", "device": "cpu"}, gates_digest="a" * 64)
    keys = {
        TERMS.key("a", b"x"),
        TERMS.key("b", b"x"),
        TERMS.key("a", b"y"),
        other.key("a", b"x"),
        TERMS.key("ax", b""),
    }
    assert len(keys) == 5
    assert TERMS.key("a", b"x") == TERMS.key("a", b"x")
