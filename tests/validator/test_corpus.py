"""The corpus: each file gets the verdict that the index states, by the rule it is about."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from amk.ir.schedule import Schedule
from amk.validator import RULES, AccessModel, Outcome, Verdict, validate, validate_model

CORPUS = Path(__file__).resolve().parent.parent / "corpus"
INDEX: dict[str, dict[str, str]] = json.loads((CORPUS / "index.json").read_text())

each = pytest.mark.parametrize("name", INDEX)


def verdict_of(name: str) -> Verdict:
    path = CORPUS / name
    if name.endswith(".model.json"):
        return validate_model(msgspec.json.decode(path.read_bytes(), type=AccessModel, strict=True))
    return validate(Schedule.from_json(path.read_bytes().rstrip(b"\n"), path=path))


@each
def test_verdict(name: str) -> None:
    entry, verdict = INDEX[name], verdict_of(name)
    assert verdict.outcome is Outcome(entry["verdict"]), [str(finding) for finding in verdict.findings]
    assert (entry["code"] in verdict.codes()) if entry["code"] else not verdict.findings


@each
def test_the_folder_and_the_name_say_the_verdict(name: str) -> None:
    folder, file = name.split("/")
    entry = INDEX[name]
    assert folder == ("accept" if entry["verdict"] == "proved" else "reject")
    assert file.startswith(entry["code"].removeprefix("AMK-"))
    assert entry["why"]


def test_the_index_is_complete() -> None:
    files = {path.relative_to(CORPUS).as_posix() for path in CORPUS.rglob("*.json")} - {"index.json"}
    assert files == set(INDEX)


@pytest.mark.parametrize("code", RULES)
def test_every_rule_has_a_refused_file_and_its_nearest_neighbour(code: str) -> None:
    mine = [entry for entry in INDEX.values() if entry["code"] == code]
    assert any(entry.get("nearest") in INDEX for entry in mine), mine
    assert all(INDEX[entry["nearest"]]["verdict"] == "proved" for entry in mine if "nearest" in entry)


@each
def test_refused_files_break_few_rules(name: str) -> None:
    # A minimal file breaks the rule it is about; where a second code shows, it is the same fault seen from elsewhere.
    assert len({finding.code for finding in verdict_of(name).findings}) <= 2
