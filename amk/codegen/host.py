"""CudaSource -> a program for this machine's processor: the kernel's own source, on the primitives of csrc/host/.

What NVRTC compiles is compiled here by g++ or clang++, byte for byte; only the headers of prim/ are others. The program
maps the memory that its owner made and runs launches on it (csrc/host/main.cc), each block an operating-system thread,
each CUDA thread a fiber.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from amk.codegen.errors import CompileFailedError, NoHostCompilerError
from amk.ir.record import Record
from amk.settings import settings

if TYPE_CHECKING:
    from amk.codegen.emit import CudaSource

Watch = Literal["nothing", "addresses", "threads", "footprints"]
"""What watches a program: a file of csrc/host/watch/."""

# The kernel reads shared memory as words of several types, as it may on a chip.
_COMMON: Final = ("-std=c++17", "-O2", "-g1", "-fno-strict-aliasing", "-fno-omit-frame-pointer", "-w", "-pthread")
_SANITIZE: Final = "-fsanitize=address,undefined"
_EVERY: Final[dict[Watch, tuple[str, ...]]] = {
    "nothing": (),
    "addresses": (_SANITIZE, "-fno-sanitize-recover=all"),
    "threads": (),
    "footprints": (),
}
_KERNEL: Final[dict[Watch, tuple[str, ...]]] = {
    "nothing": (),
    "addresses": (),
    "threads": ("-fsanitize=thread",),
    # The hooks that the compiler puts before every access; csrc/host/watch/footprints.cc is what they call.
    "footprints": ("-fsanitize=thread",),
}
_LINK: Final[dict[Watch, tuple[str, ...]]] = {
    "nothing": (),
    "addresses": (_SANITIZE,),
    "threads": ("-fsanitize=thread",),
    "footprints": (),
}
_COMPILERS: Final = ("g++", "clang++", "c++")


class Program(Record):
    """An executable for this machine, and what made it.

    Attributes
    ----------
    arch, source_digest
        Of its ``CudaSource``.
    compiler
        Its version, as it says itself.
    options
        Its flags: the watch, then what every file, the kernel and the link were given.
    code
        The executable.
    """

    arch: str
    source_digest: str
    compiler: str
    options: tuple[str, ...]
    code: bytes

    def digest(self) -> str:
        """sha256 of the code, in hex."""
        return hashlib.sha256(self.code).hexdigest()


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler of this machine."""

    path: str
    version: str


def compiler() -> Compiler:
    """The C++ compiler that builds programs: ``AMK_CXX``, else g++ or clang++.

    Raises
    ------
    NoHostCompilerError
    """
    asked = settings().cxx
    found = shutil.which(asked) if asked else next(filter(None, map(shutil.which, _COMPILERS)), None)
    if found is None:
        raise NoHostCompilerError(looked=asked or ", ".join(_COMPILERS))
    said = _run([found, "--version"], Path.cwd())
    return Compiler(path=found, version=said.stdout.split("\n", 1)[0].strip())


def options_for(watch: Watch) -> tuple[str, ...]:
    """The flags of a build; part of its identity."""
    return (watch, *_COMMON, *_EVERY[watch], *_KERNEL[watch], *_LINK[watch])


def build(source: CudaSource, watch: Watch, by: Compiler) -> Program:
    """Compile ``source``, watched by ``watch``.

    Raises
    ------
    CompileFailedError
    """
    with tempfile.TemporaryDirectory(prefix="amk-host-") as name:
        folder = Path(name)
        for path, text in {**source.headers, "kernel.cc": source.text}.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        parts = [path for path in source.headers if path.endswith(".cc") and not path.startswith("host/watch/")]
        parts += ["kernel.cc", f"host/watch/{watch}.cc"]
        every = [by.path, *_COMMON, *_EVERY[watch]]
        builds = [
            [*every, *(_KERNEL[watch] if part == "kernel.cc" else ()), "-I.", "-c", part, "-o", f"{part}.o"]
            for part in parts
        ]
        started = [_start(words, folder) for words in builds]
        failed = [log for job in started if (log := _ended(job))]
        if not failed:
            link = [*every, *_LINK[watch], *(f"{part}.o" for part in parts), "-o", "program"]
            failed = [log for log in [_ended(_start(link, folder))] if log]
        if failed:
            raise CompileFailedError(compiler=by.version, arch=source.arch, log="\n".join(failed).strip())
        code = (folder / "program").read_bytes()
    return Program(
        arch=source.arch,
        source_digest=source.digest(),
        compiler=by.version,
        options=options_for(watch),
        code=code,
    )


def _run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def _start(words: list[str], folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _ended(job: subprocess.Popen[str]) -> str:
    """What a compiler that failed printed; empty for one that did not."""
    log, _ = job.communicate()
    return "" if job.returncode == 0 else log or f"exit code {job.returncode}"
