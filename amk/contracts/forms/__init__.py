"""What people have kernels in, read as a work list: a file, a folder of files, JSON or JSONL records.

A kernel here is two texts of Python: a module with ``Model``, ``get_inputs`` and ``get_init_inputs``, and one with
``ModelNew``; often they are one and the same. Nothing of them is run, or even parsed, on the way. An entry that cannot
be read stays on the list and says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from amk.contracts.errors import NoKernelsError
from amk.contracts.forms.entries import Work, WorkList
from amk.contracts.forms.files import FileList
from amk.contracts.forms.records import RecordList, given_fields
from amk.errors import BadOptionError, UnreadableInputError

__all__ = ["Work", "WorkList", "read_works"]


def read_works(path: Path, *, fields: Sequence[str] = (), reference: Path | None = None) -> WorkList:
    """The kernels in ``path``.

    Parameters
    ----------
    path
        A ``.py`` file, a folder of them (with its subfolders), or records: a ``.jsonl`` file with one object a line, or
        a ``.json`` file with a list of objects or an object of named ones.
    fields
        ``ROLE=FIELD`` for records whose fields have other names than the usual ones.
    reference
        A file, or a folder with files of the same names, that holds the references. Without it a candidate
        ``X_new.py`` belongs to ``X.py`` beside it, and any other file holds both.

    Raises
    ------
    UnreadableInputError
        There is no such path, or it is not JSON.
    UnknownFieldRoleError, MissingFieldError
        ``fields`` are off, or no record has what is needed; says which fields were found.
    NoKernelsError
        There is nothing to judge.
    BadOptionError
        ``reference`` is given, and ``path`` holds records.
    """
    given = given_fields(fields)
    if not path.exists():
        raise UnreadableInputError(path=path, why="there is no such file or folder", fix="pass a path that exists")
    if path.suffix in {".json", ".jsonl"} and path.is_file():
        if reference is not None:
            why, fix = "records have their references in a field", "leave it out, and see --field reference=FIELD"
            raise BadOptionError(option="--reference", value=str(reference), why=why, fix=fix)
        return RecordList(path, given)
    if path.is_dir() or path.suffix == ".py":
        return FileList(path, reference)
    raise NoKernelsError(path=path, why=f"it is a {path.suffix or 'nameless'} file")
