"""Kernels in files: one with both classes, two beside each other, or a folder of candidates and one of references."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from amk.contracts.errors import NoKernelsError
from amk.contracts.forms.entries import MODEL_NEW, SOURCE_BYTES_MAX, Texts, UnreadableEntry, Work, works_of
from amk.errors import UnreadableInputError

SUFFIX: Final = "_new"
"""``softmax_new.py`` holds the candidate for ``softmax.py``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """Files of one kernel: the same one twice where it holds both classes, no ``reference`` where none was found."""

    title: str
    candidate: Path
    reference: Path | None

    def texts(self) -> Texts:
        """Read them; raises UnreadableEntry."""
        if self.reference is None:
            raise UnreadableEntry("there is no reference of its name")
        candidate = _read_source(self.candidate)
        if self.reference == self.candidate and MODEL_NEW not in candidate:
            why = f"it does not define {MODEL_NEW}, and there is no {self.candidate.stem}{SUFFIX}.py beside it"
            raise UnreadableEntry(why)
        reference = candidate if self.reference == self.candidate else _read_source(self.reference)
        return Texts(reference=reference, candidate=candidate, folder=str(self.candidate.parent.resolve()))


class FileList:
    """The work list of a file or a folder; see ``read_works``."""

    def __init__(self, path: Path, reference: Path | None) -> None:
        index = None if reference is None else _Index(reference)
        self._pairs = tuple(_pairs_of(path, index) if path.is_dir() else [_pair_of(path, index)])
        if not self._pairs:
            raise NoKernelsError(path=path, why="there is no .py file in it")

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[Work]:
        return works_of(self._entries())

    def _entries(self) -> Iterator[tuple[str, str, Texts | UnreadableEntry]]:
        for pair in self._pairs:
            try:
                yield pair.title, str(pair.candidate), pair.texts()
            except UnreadableEntry as error:
                yield pair.title, str(pair.candidate), error


class _Index:
    """References by their path within a folder and by their bare name; a single file is everyone's reference."""

    def __init__(self, reference: Path) -> None:
        if not reference.exists():
            why, fix = "there is no such file or folder", "give another path for --reference"
            raise UnreadableInputError(path=reference, why=why, fix=fix)
        self._place = reference.resolve()
        self._files: dict[str, Path] = {}
        if reference.is_dir():
            files = sorted(_python_files(reference))
            self._files = {str(file.relative_to(reference)): file for file in files}
            for file in files:
                self._files.setdefault(file.name, file)
            self._only = None
        else:
            self._only = reference

    def holds(self, file: Path) -> bool:
        """Whether ``file`` is a reference itself."""
        place = file.resolve()
        return self._place == place or self._place in place.parents

    def find(self, title: str, stem: str) -> Path | None:
        """The reference of the candidate ``title`` (its path, without suffix)."""
        if self._only is not None:
            return self._only
        titles = (title, title.removesuffix(SUFFIX), stem, stem.removesuffix(SUFFIX))
        return next((self._files[f"{name}.py"] for name in titles if f"{name}.py" in self._files), None)


def _pair_of(path: Path, index: _Index | None) -> _Pair:
    """The pair that a single file belongs to."""
    if index is not None:
        return _Pair(title=path.stem, candidate=path, reference=index.find(path.stem, path.stem))
    base = path.with_name(f"{path.stem.removesuffix(SUFFIX)}.py")
    if base != path and base.is_file():
        return _Pair(title=base.stem, candidate=path, reference=base)
    other = path.with_name(f"{path.stem}{SUFFIX}.py")
    return _Pair(title=path.stem, candidate=other if other.is_file() else path, reference=path)


def _pairs_of(folder: Path, index: _Index | None) -> Iterator[_Pair]:
    files = sorted(_python_files(folder))
    present = set(files)
    for file in files:
        title = str(file.relative_to(folder).with_suffix(""))
        if index is not None:
            if not index.holds(file):  # references may lie in a subfolder of the candidates
                yield _Pair(title=title, candidate=file, reference=index.find(title, file.stem))
            continue
        base = file.with_name(f"{file.stem.removesuffix(SUFFIX)}.py")
        if base != file and base in present:
            continue  # it comes with its reference
        other = file.with_name(f"{file.stem}{SUFFIX}.py")
        yield _Pair(title=title, candidate=other if other in present else file, reference=file)


def _python_files(folder: Path) -> Iterator[Path]:
    """Plain files, so that no pipe or device is waited for; hidden folders and links to folders are left alone."""
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith((".", "__"))]
        for name in names:
            file = Path(root) / name
            if name.endswith(".py") and not name.startswith((".", "__")) and file.is_file():
                yield file


def _read_source(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            data = stream.read(SOURCE_BYTES_MAX + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UnreadableEntry(f"{path.name} cannot be read: {error}") from error
    if len(data) > SOURCE_BYTES_MAX:
        raise UnreadableEntry(f"{path.name} is larger than {SOURCE_BYTES_MAX >> 20} MiB")
    return text
