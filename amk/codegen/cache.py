"""The build cache: each cubin or host program is built once on a machine, and none is launched that is not in it.

An entry is a file ``cubins/KEY.json`` (or ``programs/KEY.json``) under the cache of ``amk.settings``: on its first line
the sha256 of what follows in hex, then the ``Cubin`` (or ``Program``) as canonical JSON. KEY is the sha256 of all that
decides the code: the source, the architecture, the flags and the compiler's version. An entry that is not what its name
and its digest say is built again, never used.

A lock file a key lets two processes that want one kernel build it once. It saves work, no more: what keeps the cache
right is that an entry is written whole or not at all.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec
from filelock import FileLock, Timeout

from amk.codegen import host
from amk.codegen.emit import CudaSource
from amk.codegen.host import Program, Watch
from amk.codegen.nvrtc import Cubin, build, nvrtc_version, options_for
from amk.errors import UnwritablePathError
from amk.ir.record import Record
from amk.settings import HOME_FIX, settings, writable_folder, write_atomically

logger = logging.getLogger("amk.codegen")

CUBINS: Final = "cubins"
PROGRAMS: Final = "programs"
"""Folders of the entries, which ``amk cache`` shows and clears by these names."""

PATIENCE_S: Final = 60.0
"""Seconds after which another process's build is no longer waited for."""

Built = TypeVar("Built", Cubin, Program)


class _Identity(Record):
    """What an entry is found by, and what it has to say of itself."""

    source_digest: str
    arch: str
    options: tuple[str, ...]
    compiler: str

    @property
    def key(self) -> str:
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()

    def fits(self, built: Cubin | Program) -> bool:
        compiler = built.nvrtc if isinstance(built, Cubin) else built.compiler
        return self == _Identity(built.source_digest, built.arch, built.options, compiler)


def cubin_for(source: CudaSource) -> Cubin:
    """The cubin of ``source``: from the cache, else built and kept there.

    Raises
    ------
    NoCompilerError, CompileFailedError, SpillError
        It is not in the cache and cannot be built.
    UnwritablePathError
        It is not in the cache, which cannot be written.
    """
    return _kept(CUBINS, Cubin, _cubin_identity(source), lambda: build(source))


def cached(source: CudaSource) -> Cubin | None:
    """The cubin of ``source`` if it is in the cache; NoCompilerError, since the compiler's version is part of it."""
    identity = _cubin_identity(source)
    return _read(_path(CUBINS, identity), Cubin, identity)


def program_for(source: CudaSource, watch: Watch = "nothing") -> Program:
    """The host program of ``source``: from the cache, else built and kept there.

    Raises
    ------
    NoHostCompilerError, CompileFailedError
        It is not in the cache and cannot be built.
    UnwritablePathError
        It is not in the cache, which cannot be written.
    """
    by = host.compiler()
    identity = _Identity(source.digest(), source.arch, host.options_for(watch), by.version)
    return _kept(PROGRAMS, Program, identity, lambda: host.build(source, watch, by))


def _kept(kind: str, of: type[Built], identity: _Identity, make: Callable[[], Built]) -> Built:
    path = _path(kind, identity)
    if found := _read(path, of, identity):
        return found
    writable_folder(path.parent)
    with _lock(path.with_suffix(".lock")):
        if found := _read(path, of, identity):
            return found
        built = make()
        write_atomically(path, _sealed(msgspec.json.encode(built, order="sorted")))
    logger.info("built %s for %s", path.name, identity.arch)
    return built


def _cubin_identity(source: CudaSource) -> _Identity:
    return _Identity(source.digest(), source.arch, options_for(source.arch), nvrtc_version())


def _path(kind: str, identity: _Identity) -> Path:
    return settings().cache / kind / f"{identity.key}.json"


def _sealed(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def _read(path: Path, of: type[Built], identity: _Identity) -> Built | None:
    """The entry at ``path``, or None if there is none that can be trusted."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        logger.warning("the cached build %s cannot be read (%s) and is built again", path, error)
        return None
    body = data.partition(b"\n")[2]
    try:
        built = msgspec.json.decode(body, type=of, strict=True) if data == _sealed(body) else None
    except msgspec.MsgspecError:
        built = None
    if built is None or not identity.fits(built):
        logger.warning("the cached build %s is damaged and is built again", path)
        return None
    return built


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold the lock file ``path``, or go on without it after a while."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=PATIENCE_S)
    except Timeout:
        logger.warning("another process has held %s for %.0f s; building without it", path, PATIENCE_S)
    except OSError as error:
        raise UnwritablePathError(path=path, why=error.strerror or error, fix=HOME_FIX) from error
    try:
        yield
    finally:
        lock.release()
