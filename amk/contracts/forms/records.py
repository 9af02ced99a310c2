"""Kernels in JSON or JSONL records, whose fields may have any names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, get_args

import msgspec

from amk.contracts.errors import MissingFieldError, NoKernelsError, UnknownFieldRoleError
from amk.contracts.forms.entries import SOURCE_BYTES_MAX, Texts, UnreadableEntry, Work, works_of
from amk.errors import UnreadableInputError

Role = Literal["reference", "candidate", "source", "name"]
"""Parts of a record: ``source`` is a text with both ``Model`` and ``ModelNew``."""

ROLES: Final[tuple[Role, ...]] = get_args(Role)

USUAL: Final[dict[Role, tuple[str, ...]]] = {
    "reference": ("reference", "ref_arch_src", "reference_code", "ref_code", "PyTorch_Code_Module", "pytorch_code"),
    "candidate": ("candidate", "custom_cuda_code", "custom_code", "kernel_code", "generated_code", "triton_code"),
    "source": ("source", "module"),
    "name": ("name", "kernel", "problem_name", "Op_Name", "problem_id", "id"),
}
"""Field names that are looked for, in this order, where none is given."""

FIELDS_SHOWN: Final = 40


def given_fields(fields: Sequence[str]) -> dict[Role, str]:
    """Fields by role, of ``ROLE=FIELD`` texts; raises UnknownFieldRoleError."""
    given: dict[Role, str] = {}
    for field in fields:
        role, equals, name = field.partition("=")
        known = next((each for each in ROLES if each == role), None)
        if known is None or not equals or not name:
            raise UnknownFieldRoleError(given=field, roles=", ".join(ROLES))
        given[known] = name
    return given


class RecordList:
    """The work list of a file of records; see ``read_works``.

    The first record that has all that is needed decides which fields are read. A ``.jsonl`` file is read a line at a
    time, a ``.json`` file whole.
    """

    def __init__(self, path: Path, given: Mapping[Role, str]) -> None:
        self._path = path
        self._length = 0
        fields: dict[Role, str] | None = None
        found: dict[str, None] = {}
        for record in _read_records(path):
            self._length += 1
            if fields is None and isinstance(record, dict):
                found.update(dict.fromkeys(record))
                fields = _fitting(record, given)
        if not self._length:
            raise NoKernelsError(path=path, why="there is no record in it")
        if fields is None:
            role, wanted = _missing(found, given)
            names = ", ".join(list(found)[:FIELDS_SHOWN]) or "none, for no record is an object"
            raise MissingFieldError(path=path, wanted=wanted, found=names, role=role)
        self._fields = fields

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Work]:
        return works_of(self._entries())

    def _entries(self) -> Iterator[tuple[str, str, Texts | UnreadableEntry]]:
        for number, record in enumerate(_read_records(self._path), start=1):
            name = record.get(self._fields.get("name", "")) if isinstance(record, dict) else None
            title = str(name) if isinstance(name, str | int) and str(name) else f"record-{number}"
            origin = f"{self._path}:{number}"
            try:
                yield title, origin, _texts(record, self._fields)
            except UnreadableEntry as error:
                yield title, origin, error


def _fitting(record: Mapping[str, object], given: Mapping[Role, str]) -> dict[Role, str] | None:
    """Which of the record's fields holds what; None where a part is missing."""
    held: dict[Role, str] = {}
    for role in ROLES:
        names = (given[role],) if role in given else USUAL[role]
        if (name := next((name for name in names if name in record), None)) is not None:
            held[role] = name
        elif role in given:
            return None
    return held if "source" in held or {"reference", "candidate"} <= set(held) else None


def _missing(found: Mapping[str, object], given: Mapping[Role, str]) -> tuple[Role, str]:
    """The part that is missing, and the fields that would have been taken for it."""
    for role, name in given.items():
        if name not in found:
            return role, f"a field {name!r}"
    parts: tuple[Role, ...] = ("reference", "candidate")
    for role in parts:
        names = (given[role],) if role in given else USUAL[role]
        if not set(names) & set(found):
            return role, f"a {role} (one of {', '.join(names)})"
    return "source", "a reference and a candidate at once"


def _texts(record: object, fields: Mapping[Role, str]) -> Texts:
    if isinstance(record, UnreadableEntry):
        raise record
    if not isinstance(record, dict):
        raise UnreadableEntry("it is not an object")
    if "reference" in fields and "candidate" in fields:
        return Texts(reference=_text(record, fields["reference"]), candidate=_text(record, fields["candidate"]))
    both = _text(record, fields["source"])
    return Texts(reference=both, candidate=both)


def _text(record: Mapping[str, object], field: str) -> str:
    value = record.get(field)
    if not isinstance(value, str) or not value.strip():
        what = f"has no field {field!r}" if field not in record else f"has no text in its field {field!r}"
        raise UnreadableEntry(f"it {what}; fields found: {', '.join(list(record)[:FIELDS_SHOWN])}")
    if len(value) > SOURCE_BYTES_MAX:
        raise UnreadableEntry(f"its field {field!r} is larger than {SOURCE_BYTES_MAX >> 20} MiB")
    return value


def _read_records(path: Path) -> Iterator[object]:
    """Each record; in the place of a line that is not JSON an ``UnreadableEntry``."""
    fix = "pass a file of JSON records"
    try:
        if path.suffix == ".jsonl":
            with path.open("rb") as stream:
                yield from (_decoded(line) for line in stream if line.strip())
            return
        document = msgspec.json.decode(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableInputError(path=path, why=error, fix=fix) from error
    if isinstance(document, dict) and all(isinstance(value, dict) for value in document.values()):
        yield from ({"name": name, **record} for name, record in document.items())
    elif isinstance(document, list):
        yield from document
    else:
        raise UnreadableInputError(path=path, why="it is neither a list nor an object of records", fix=fix)


def _decoded(line: bytes) -> object:
    try:
        return msgspec.json.decode(line)
    except (ValueError, RecursionError) as error:
        return UnreadableEntry(f"it is not JSON: {error}")
