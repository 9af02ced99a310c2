"""Every error is a stable code and two templates that its facts fill."""

from __future__ import annotations

import importlib
import pickle
import re
import string
from collections.abc import Iterator
from pathlib import Path

import pytest

from amk import errors
from amk.errors import AmkError

ROOT = Path(__file__).resolve().parent.parent
EXIT_CODES = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
CODE = re.compile(r"^ {4}code = \"(AMK-\w+)\"", re.MULTILINE)

for path in sorted((ROOT / "amk").rglob("errors.py")):
    importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def subclasses(kind: type[AmkError]) -> Iterator[type[AmkError]]:
    for child in kind.__subclasses__():
        if child.__module__.startswith("amk."):
            yield child
            yield from subclasses(child)


ERRORS = sorted(set(subclasses(AmkError)), key=lambda kind: kind.code)


class AnyFact(str):
    """Fits every conversion and every format specification of a template."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return str(self)


def fields(template: str) -> set[str]:
    return {field.partition(".")[0].partition("[")[0] for _, field, _, _ in string.Formatter().parse(template) if field}


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.code)
def test_an_error_formats_and_survives_another_process(kind: type[AmkError]) -> None:
    names = fields(kind.what) | fields(kind.mend)
    error = kind(**{name: AnyFact(f"<{name}>") for name in names})
    assert error.message
    assert all(f"<{name}>" in f"{error.message} {error.remedy}" for name in names)
    assert str(error).startswith(f"{kind.code} ")
    again = pickle.loads(pickle.dumps(kind(**dict.fromkeys(names, "fact"))))
    assert type(again) is kind
    assert again.facts == dict.fromkeys(names, "fact")


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.code)
def test_a_code_has_its_form_and_a_documented_exit(kind: type[AmkError]) -> None:
    assert "code" in vars(kind), f"{kind.__name__} needs a code of its own"
    assert re.fullmatch(r"AMK-[UCFSVBRP]\d{3}", kind.code)
    assert kind.exit_code in EXIT_CODES - {errors.EXIT_PASS}


def test_no_code_is_used_twice_anywhere() -> None:
    codes = [code for path in (ROOT / "amk").rglob("*.py") for code in CODE.findall(path.read_text())]
    twice = sorted({code for code in codes if codes.count(code) > 1})
    assert not twice
    assert set(codes) >= {kind.code for kind in ERRORS}


def test_a_missing_fact_is_a_defect_at_the_place_that_raises() -> None:
    with pytest.raises(KeyError):
        errors.UnknownArchError(arch="sm_1")
