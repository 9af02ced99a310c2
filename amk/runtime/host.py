"""The kernel on this machine's processor: a process that maps the same memory and runs the launches it is told to."""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import subprocess
import tempfile
import weakref
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from amk.codegen import abi
from amk.runtime.chip import ALIGN, Pinned
from amk.runtime.errors import HostCrashError, HostMemoryError

if TYPE_CHECKING:
    from amk.codegen.config import KernelConfig
    from amk.codegen.host import Program

ARENA_BYTES: Final = 256 << 30
"""Of address space; memory is taken as it is touched."""

PATIENCE: Final = 20
"""By how much a wait may take longer here than on a GPU before it is given up."""

LOG_LINES: Final = 60
"""Of what a process that crashed had to say."""


class HostChip:
    """A program in a process of its own; see ``chip.Chip``. Its crash is an error here, never the end of the caller.

    Parameters
    ----------
    program, config
        The kernel, and the constants it was built with.
    workers
        Blocks of a launch, a thread each.
    seed
        Of the order of threads, of the workers' speed and of when copies land; 0 leaves nothing to chance.
    log
        Where a program that logs its footprints appends them.

    Raises
    ------
    HostCrashError
        The program does not start.
    """

    clock_hz = 1e9
    gap = 4096

    def __init__(
        self, program: Program, config: KernelConfig, *, workers: int, seed: int = 0, log: Path | None = None
    ) -> None:
        self.seed = seed
        self._config = config
        self._workers = workers
        self._running = False
        self._said = b""
        descriptor = os.memfd_create("amk")
        try:
            os.ftruncate(descriptor, ARENA_BYTES)
            self._arena = mmap.mmap(descriptor, ARENA_BYTES)
            self._bytes = np.frombuffer(self._arena, dtype=np.uint8)
            self._process, self._errors = _start(program, descriptor, log)
        finally:
            os.close(descriptor)
        self._free = weakref.finalize(self, _free, self._process, self._errors)
        self._end = 0
        self._base = int(self._hear().split()[1])
        self._params = self.memory(abi.PARAMS.size)

    def memory(self, size: int) -> int:
        offset = self._end
        self._end = -(-(offset + size + self.gap) // ALIGN) * ALIGN
        if self._end > ARENA_BYTES:
            raise HostMemoryError(need=self._end, most=ARENA_BYTES)
        self.guard(self._base + offset + size, self._end - offset - size)
        return self._base + offset

    def pinned(self, words: int) -> Pinned:
        address = self.memory(4 * words)
        return Pinned(address=address, words=self._view(address, 4 * words).view(np.uint32))

    def guard(self, address: int, size: int) -> None:
        self._tell(f"guard {address} {size}")

    def observe(self, address: int, size: int) -> None:
        """Log the accesses to these bytes, where the program does so."""
        self._tell(f"observe {address} {size}")

    def upload(self, address: int, data: NDArray[Any]) -> None:
        flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self._view(address, flat.nbytes)[:] = flat

    def download(self, address: int, out: NDArray[Any]) -> None:
        out.reshape(-1).view(np.uint8)[:] = self._view(address, out.nbytes)

    def launch(self, params: bytes, *, rows: bool = False) -> None:
        self.upload(self._params, np.frombuffer(params, dtype=np.uint8))
        config = self._config
        self._running = True
        self._tell(f"launch {self._params} {self._workers} {config.threads} {config.shared_bytes} {self.seed}")

    def is_over(self) -> bool:
        if self._running and select.select([self._stdout], [], [], 0)[0]:
            self.wait()
        return not self._running

    def wait(self) -> None:
        if not self._running:
            return
        self._hear()
        self._running = False

    def close(self) -> None:
        self._free()

    @property
    def _stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _view(self, address: int, size: int) -> NDArray[np.uint8]:
        offset = address - self._base
        return self._bytes[offset : offset + size]

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n".encode())
        except BrokenPipeError:
            self._crashed()

    def _hear(self) -> str:
        """The next line that the process says."""
        # What was read is kept before anything else happens: an interrupt must not lose half a line.
        while b"\n" not in self._said:
            data = os.read(self._stdout.fileno(), 4096)
            if not data:
                self._crashed()
            self._said += data
        line, _, self._said = self._said.partition(b"\n")
        return line.decode()

    def _crashed(self) -> None:
        self._running = False  # nothing is left to wait for; whoever launches again is told again
        code = self._process.wait()
        self._errors.seek(0)
        log = self._errors.read().decode(errors="replace").strip().splitlines()
        raise HostCrashError(code=code, log="\n".join(log[:LOG_LINES]) or "it said nothing")


def _start(program: Program, arena: int, log: Path | None) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    """The program as a process, and the file that it writes its errors to."""
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
    with tempfile.TemporaryDirectory(prefix="amk-host-") as folder:
        path = Path(folder) / "program"
        path.write_bytes(program.code)
        path.chmod(0o700)
        words = [str(path), str(arena), str(ARENA_BYTES), *([str(log)] if log else [])]
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            pass_fds=(arena,),
            bufsize=0,
            # An interrupt from the keyboard is the owner's, which asks the kernel to stop.
            start_new_session=True,
        )
    return process, errors


def _free(process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
    """End the process, whatever it does; its memory goes with it and with the last view of the arena."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
    process.wait()
    errors.close()
