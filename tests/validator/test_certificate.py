"""Certificates, and the type that only a proof makes."""

from __future__ import annotations

import ast
import copy
import pickle
from pathlib import Path

import pytest
from msgspec.structs import replace

import amk.validator
from amk.errors import (
    BadOptionError,
    CertificateMismatchError,
    ScheduleRefutedError,
    ScheduleUnknownError,
    UnreadableInputError,
)
from amk.ir.schedule import Schedule, Wait
from amk.validator import (
    RULES,
    Certificate,
    Outcome,
    ValidatedSchedule,
    certify,
    check_certificate,
    explain,
    validate,
    validator_digest,
)
from amk.validator.digest import PACKAGE, READ, ROOM
from tests.builders import llama_graph, lower
from tests.conftest import Run


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    return lower(llama_graph(), workers=3)


def broken(schedule: Schedule) -> Schedule:
    begin = schedule.tasks[0]
    wait = Wait(counter=begin.waits[0].counter, threshold=5)
    return replace(schedule, tasks=(replace(begin, waits=(wait,)), *schedule.tasks[1:]))


def test_a_proof_makes_a_certificate(schedule: Schedule) -> None:
    validated = certify(schedule)
    certificate = validated.certificate
    assert validated.schedule is schedule
    assert certificate.verdict is Outcome.PROVED
    assert certificate.schedule == schedule.digest()
    assert certificate.validator == validator_digest()
    assert (certificate.steps_max, certificate.max_context, certificate.tokens) == (64, 64, (1, 8))
    assert certificate.one_line().startswith("PROVED schedule ")
    check_certificate(certificate, schedule)


def test_two_proofs_give_the_same_bytes(schedule: Schedule) -> None:
    assert certify(schedule).certificate.to_json() == certify(schedule).certificate.to_json()


def test_a_certificate_reads_itself(schedule: Schedule) -> None:
    certificate = certify(schedule).certificate
    assert Certificate.from_json(certificate.to_json()) == certificate


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"schedule": 1}'])
def test_what_is_no_certificate_is_refused(data: bytes) -> None:
    with pytest.raises(UnreadableInputError):
        Certificate.from_json(data)


@pytest.mark.parametrize(
    "change",
    [
        {"schedule": "0" * 64},
        {"validator": "0" * 64},
        {"vm": "1"},
        {"steps_max": 65},
        {"max_context": 65},
        {"tokens": (1, 9)},
        {"drift": 3},
        {"verdict": Outcome.UNKNOWN},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_certificate_that_does_not_fit_is_refused(schedule: Schedule, change: dict) -> None:
    certificate = replace(certify(schedule).certificate, **change)
    with pytest.raises(CertificateMismatchError, match=next(iter(change))):
        check_certificate(certificate, schedule)


def test_a_refuted_schedule_has_no_certificate(schedule: Schedule) -> None:
    with pytest.raises(ScheduleRefutedError, match="AMK-V302") as caught:
        certify(broken(schedule))
    assert caught.value.facts["verdict"].outcome is Outcome.REFUTED


def test_an_open_schedule_has_no_certificate(schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = replace(validate(schedule), outcome=Outcome.UNKNOWN)
    monkeypatch.setattr("amk.validator.certificate.validate", lambda _: verdict)
    with pytest.raises(ScheduleUnknownError):
        certify(schedule)


def test_nothing_but_a_proof_makes_a_validated_schedule(schedule: Schedule) -> None:
    validated = certify(schedule)
    for make in (
        lambda: ValidatedSchedule(schedule, validated.certificate),
        lambda: ValidatedSchedule(schedule, validated.certificate, seal=object()),
        lambda: pickle.dumps(validated),
        lambda: copy.copy(validated),
        lambda: copy.deepcopy(validated),
    ):
        with pytest.raises(TypeError):
            make()
    with pytest.raises(AttributeError):
        validated.schedule = broken(schedule)


def test_every_rule_explains_itself() -> None:
    for code, rule in RULES.items():
        text = explain(code)
        assert text.startswith(f"{code} {rule.title}")
        assert len(text) > 200, code
    assert explain("v301") == explain("AMK-V301")
    with pytest.raises(BadOptionError):
        explain("AMK-V999")


def test_the_digest_covers_all_that_the_validator_imports() -> None:
    seen: set[Path] = set()
    todo = set(ROOM.rglob("*.py"))
    while todo:
        path = todo.pop()
        seen.add(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("amk"):
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
                files = [PACKAGE.parent / (name.replace(".", "/") + ".py") for name in names]
                todo |= {file for file in files if file.exists()} - seen
    outside = {path.relative_to(PACKAGE).as_posix() for path in seen if ROOM not in path.parents}
    assert outside - {"errors.py"} == set(READ) - {"ir/__init__.py"}


def test_importing_the_validator_is_light(run_python: Run) -> None:
    heavy = ("torch", "transformers", "jinja2", "cuda", "networkx", "typer", "rich")
    done = run_python(f"import sys, amk.validator; print([m for m in {heavy!r} if m in sys.modules])")
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_the_public_names_exist() -> None:
    assert all(hasattr(amk.validator, name) for name in amk.validator.__all__)
