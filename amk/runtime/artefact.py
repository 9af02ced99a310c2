"""The ``.amk`` file: a zip of JSON, and nothing that runs.

Members have fixed names and bounded sizes, and are read into memory one by one: a path in an archive is never used as
a path on disk. What the file claims is checked again by whoever loads it.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec

from amk.errors import ArtefactError, UnreadableInputError
from amk.ir.graph import Graph
from amk.ir.record import Record
from amk.ir.schedule import MAX_FILE_BYTES, Schedule
from amk.runtime.kernel import KernelFacts
from amk.settings import write_atomically
from amk.validator import Certificate

ARTEFACT_VERSION: Final = 1
SMALL: Final = 16 * 1024 * 1024

_LIMITS: Final = {
    "manifest.json": SMALL,
    "config.json": SMALL,
    "graph.json": SMALL,
    "certificate.json": SMALL,
    "schedule.json": MAX_FILE_BYTES,
}
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the zip format's zero: equal models make equal files

RecordT = TypeVar("RecordT", bound=Record)


class Manifest(Record):
    """What was compiled, from what, by which amk.

    ``model`` is what to resolve again for weights and tokenizer; ``weights_digest`` is empty when the weights were not
    at hand, and otherwise what they must be. ``kernel`` is None for the reference machine. No machine code travels: it
    is built, or found in the build cache, where it runs.
    """

    version: Literal[1]
    amk: str
    model: str
    source: str
    config_digest: str
    weights_digest: str
    dtype: str
    kv_dtype: str
    kernel: KernelFacts | None = None
    group_size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Artefact:
    """A file's members, parsed and not yet believed."""

    manifest: Manifest
    config: dict[str, Any]
    graph: Graph
    schedule: Schedule
    certificate: Certificate


def write_artefact(
    path: Path,
    *,
    manifest: Manifest,
    config: dict[str, Any],
    graph: Graph,
    schedule: Schedule,
    certificate: Certificate,
) -> None:
    """Write an ``.amk`` file, whole or not at all.

    Raises
    ------
    UnwritablePathError
    """
    members = {
        "manifest.json": msgspec.json.encode(manifest, order="sorted"),
        "config.json": msgspec.json.encode(config, order="sorted"),
        "graph.json": graph.to_json(),
        "certificate.json": msgspec.json.encode(certificate, order="sorted"),
        "schedule.json": schedule.to_json(),
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, date_time=_EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    write_atomically(path, buffer.getvalue(), fix="choose another output path")


def read_artefact(path: Path) -> Artefact:
    """Read an ``.amk`` file.

    Raises
    ------
    UnreadableInputError
        There is no such file, or it cannot be read.
    ArtefactError
        It is not a zip, has other members than it should, or one of them is too large or not what it should be.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = _members(path, archive)
    except OSError as error:
        why = error.strerror or str(error)
        raise UnreadableInputError(path=path, why=why, fix="pass the path of an .amk file") from error
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise ArtefactError(path=path, why=error) from error

    def parsed(name: str, kind: type[Any]) -> Any:
        try:
            return msgspec.json.decode(members[name], type=kind)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise ArtefactError(path=path, why=f"{name}: {error}") from error

    return Artefact(
        manifest=parsed("manifest.json", Manifest),
        config=parsed("config.json", dict[str, Any]),
        graph=parsed("graph.json", Graph),
        schedule=Schedule.from_json(members["schedule.json"], path=f"{path}:schedule.json"),
        certificate=parsed("certificate.json", Certificate),
    )


def _members(path: Path, archive: zipfile.ZipFile) -> dict[str, bytes]:
    names = archive.namelist()
    if sorted(names) != sorted(_LIMITS):
        raise ArtefactError(path=path, why=f"its members are {sorted(names)[:8]}, not {sorted(_LIMITS)}")
    members = {}
    for info in archive.infolist():
        limit = _LIMITS[info.filename]
        with archive.open(info) as stream:
            data = stream.read(limit + 1)  # the size in the archive's directory is a claim like any other
        if len(data) > limit:
            raise ArtefactError(path=path, why=f"{info.filename} is larger than {limit} bytes")
        members[info.filename] = data
    return members
