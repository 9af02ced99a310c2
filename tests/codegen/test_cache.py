"""The build cache: one build a kernel, and nothing damaged or foreign is ever used."""

from __future__ import annotations

import hashlib
import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from filelock import FileLock
from msgspec.structs import replace

from amk.cli.app import main
from amk.codegen import cache
from amk.codegen.cache import cached, cubin_for
from amk.codegen.emit import CudaSource
from amk.codegen.errors import SpillError
from amk.codegen.nvrtc import Cubin, Resources, nvrtc_version, options_for
from amk.errors import UnwritablePathError
from tests.codegen.programs import source
from tests.conftest import Run


class Builder:
    """Stands for the compiler, and counts."""

    def __init__(self) -> None:
        self.built: list[CudaSource] = []

    def __call__(self, program: CudaSource) -> Cubin:
        self.built.append(program)
        return Cubin(
            arch=program.arch,
            source_digest=program.digest(),
            nvrtc=cache.nvrtc_version(),
            options=cache.options_for(program.arch),
            resources=Resources(registers=32, spilled_bytes=0, stack_bytes=0, shared_bytes=0),
            code=b"\x7fELF\n\x00" + program.text.encode(),
        )


@pytest.fixture
def builder(amk_home: Path, monkeypatch: pytest.MonkeyPatch) -> Builder:
    """An empty cache, and a compiler that counts."""
    builder = Builder()
    monkeypatch.setattr(cache, "build", builder)
    return builder


def entries(home: Path) -> list[Path]:
    return sorted((home / "cache/cubins").glob("*.json"))


# --- one build a kernel ----------------------------------------------------------------------------------------------


def test_a_cubin_is_built_once(builder: Builder, amk_home: Path) -> None:
    assert cached(source()) is None
    assert not amk_home.exists(), "looking writes nothing"
    first = cubin_for(source())
    assert cubin_for(source()) == first == cached(source())
    assert len(builder.built) == 1
    assert len(entries(amk_home)) == 1


def test_everything_that_decides_the_code_is_in_the_key(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = [source(), source("// other\n"), source(arch="sm_80"), source(headers={"a.cuh": ""})]
    for program in kernels:
        cubin_for(program)
    monkeypatch.setattr(cache, "options_for", lambda arch: (*options_for(arch), "--fmad=false"))
    cubin_for(source())
    monkeypatch.setattr(cache, "nvrtc_version", lambda: "13.9")
    cubin_for(source())
    assert len(builder.built) == len(kernels) + 2


def test_a_failed_build_leaves_nothing(builder: Builder, amk_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: CudaSource) -> Cubin:
        raise SpillError(arch="sm_90", spilled=4)

    monkeypatch.setattr(cache, "build", fail)
    with pytest.raises(SpillError):
        cubin_for(source())
    assert entries(amk_home) == []
    monkeypatch.setattr(cache, "build", builder)
    cubin_for(source())


def test_processes_that_want_one_kernel_build_it_once(amk_home: Path, run_python: Run, tmp_path: Path) -> None:
    log = tmp_path / "builds"
    program = f"""
import time
from amk.codegen import cache
from tests.codegen.programs import source

build = cache.build

def slow(program):
    with open({str(log)!r}, "a") as stream:
        stream.write("built\\n")
    time.sleep(1.0)
    return build(program)

cache.build = slow
print(cache.cubin_for(source()).digest())
"""
    with ThreadPoolExecutor() as pool:
        results = list(pool.map(lambda _: run_python(program, AMK_HOME=str(amk_home)), range(2)))
    assert [result.returncode for result in results] == [0, 0], results[0].stderr + results[1].stderr
    assert len({result.stdout for result in results}) == 1
    assert log.read_text() == "built\n"


def test_a_lock_that_is_never_given_back_is_not_waited_for_for_ever(
    builder: Builder, amk_home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cubin_for(source())
    entry = entries(amk_home)[0]
    entry.unlink()
    monkeypatch.setattr(cache, "PATIENCE_S", 0.05)
    with FileLock(entry.with_suffix(".lock")):
        cubin_for(source())
    assert "building without it" in caplog.text
    assert len(entries(amk_home)) == 1


# --- nothing damaged or foreign --------------------------------------------------------------------------------------


def sealed(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def resealed(data: bytes, **changes: object) -> bytes:
    """A well-formed entry with another content."""
    cubin = msgspec.json.decode(data.partition(b"\n")[2], type=Cubin)
    return sealed(msgspec.json.encode(replace(cubin, **changes)))


DAMAGE = {
    "empty": lambda data: b"",
    "cut off": lambda data: data[:-1],
    "longer": lambda data: data + b" ",
    "one bit": lambda data: data[:-20] + bytes([data[-20] ^ 1]) + data[-19:],
    "no digest": lambda data: data.partition(b"\n")[2],
    "another digest": lambda data: b"0" * 64 + data[64:],
    "no newline": lambda data: data.replace(b"\n", b"", 1),
    "not JSON": lambda data: sealed(b"\x00\xff"),
    "another record": lambda data: sealed(b'{"code": ""}'),
    "another source": lambda data: resealed(data, source_digest="0" * 64),
    "another arch": lambda data: resealed(data, arch="sm_80"),
    "another compiler": lambda data: resealed(data, nvrtc="12.0"),
    "other options": lambda data: resealed(data, options=("--use_fast_math",)),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_built_again(
    damage: str, builder: Builder, amk_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    right = cubin_for(source())
    (entry,) = entries(amk_home)
    good = entry.read_bytes()
    entry.write_bytes(DAMAGE[damage](good))
    assert cached(source()) is None
    assert cubin_for(source()) == right
    assert len(builder.built) == 2
    assert entry.read_bytes() == good
    assert "is damaged and is built again" in caplog.text


def test_an_entry_that_cannot_be_read_is_told(
    builder: Builder, amk_home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cubin_for(source())
    (entry,) = entries(amk_home)
    entry.unlink()
    entry.mkdir()
    assert cached(source()) is None
    assert "cannot be read" in caplog.text


# --- a folder that cannot be written ---------------------------------------------------------------------------------


def test_a_cache_that_cannot_be_written(builder: Builder, amk_home: Path) -> None:
    (amk_home / "cache").mkdir(parents=True)
    (amk_home / "cache/cubins").write_text("in the way")
    with pytest.raises(UnwritablePathError, match="AMK_HOME"):
        cubin_for(source())
    assert builder.built == []


def test_a_lock_that_cannot_be_made(builder: Builder, amk_home: Path) -> None:
    cubin_for(source())
    (entry,) = entries(amk_home)
    entry.unlink()
    lock = entry.with_suffix(".lock")
    lock.unlink(missing_ok=True)
    lock.mkdir()
    with pytest.raises(UnwritablePathError, match="AMK_HOME"):
        cubin_for(source())


def test_what_is_cached_needs_no_writing(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    cubin_for(source())

    def refuse(path: Path, *_: object) -> None:
        raise UnwritablePathError(path=path, why="read-only", fix="")

    monkeypatch.setattr(cache, "writable_folder", refuse)
    monkeypatch.setattr(cache, "write_atomically", refuse)
    cubin_for(source())
    with pytest.raises(UnwritablePathError):
        cubin_for(source("// other\n"))


# --- on the command line ---------------------------------------------------------------------------------------------


def test_the_cache_is_shown_and_cleared(builder: Builder, capsys: pytest.CaptureFixture[str]) -> None:
    cubin_for(source())
    assert main(["cache", "info"]) == 0
    assert cache.CUBINS in capsys.readouterr().out
    assert main(["cache", "clear", "--yes"]) == 0
    assert cached(source()) is None
    cubin_for(source())
    assert len(builder.built) == 2


def test_with_the_real_compiler(amk_home: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "amk.codegen"):
        built = cubin_for(source())
        assert cubin_for(source()) == built
    assert built.code.startswith(b"\x7fELF")
    assert built.nvrtc == nvrtc_version()
    assert len([record for record in caplog.records if record.message.startswith("built ")]) == 1
