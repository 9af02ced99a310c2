"""One process of a kernel's, as the judge has it: from its start to what it died of."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from torch import Tensor

from amk.contracts.errors import ForkServerError, WireError
from amk.contracts.harness.channel import Channel, ClosedError
from amk.contracts.harness.launcher import launcher, relaunch
from amk.contracts.harness.limits import session_of
from amk.contracts.harness.protocol import (
    STATUS_CLOSED,
    STATUS_DEFECT,
    STATUS_KILLED,
    Dying,
    Progress,
    Reply,
    Request,
    Spawn,
)
from amk.contracts.outcomes import Died
from amk.contracts.wire import Storages

TAIL_BYTES: Final = 2000
OUTPUT_BYTES_KEPT: Final = 1 << 20
GRACE_S: Final = 1.0
"""That a process has, once its connection is closed, to end by itself."""

HOST_BYTES: Final = 4 << 30
"""Of libraries and pinned memory, which are not what a kernel asked for."""

HOW: Final = ("crash", "hang", "exit", "memory", "device", "protocol")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a kernel may take.

    Attributes
    ----------
    timeout_s
        Of one call; a request for several has so much for each.
    first_timeout_s
        Of calls until the first one that is answered: it may compile.
    load_timeout_s
        From the start of its process until it can be called: it may compile an extension.
    memory_bytes
        Beyond what its process takes before it is loaded; on a device, of its memory too.
    processes
        That it may have at a time.
    """

    timeout_s: float = 10.0
    first_timeout_s: float = 60.0
    load_timeout_s: float = 300.0
    memory_bytes: int = 8 << 30
    processes: int = 256


class EndedError(Exception):
    """The process is gone, with all that it had started; ``died`` says how."""

    def __init__(self, died: Died) -> None:
        super().__init__(str(died))
        self.died = died


class Life:
    """A process that waits for requests.

    Parameters
    ----------
    builds
        Where what the kernel compiles is kept, for the next process of the same one.
    device
        On the CPU its address space is limited; a device's driver takes too much of one for that.

    Raises
    ------
    ForkServerError
    """

    def __init__(self, limits: Limits, builds: Path, device: str) -> None:
        self._limits = limits
        self._folder = Path(tempfile.mkdtemp(prefix="amk-kernel-"))
        self._output = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - read when the process has ended
        ours, theirs = socket.socketpair()
        (self._folder / "tmp").mkdir()
        request = Spawn(
            folder=str(self._folder),
            address_bytes=limits.memory_bytes if device == "cpu" else None,
            removable=(str(builds.parent), tempfile.gettempdir(), "/dev/shm"),  # noqa: S108 - where shared memory is
            environment={
                "TMPDIR": str(self._folder / "tmp"),
                "TORCH_EXTENSIONS_DIR": str(builds / "extensions"),
                "TORCHINDUCTOR_CACHE_DIR": str(builds / "inductor"),
                "TRITON_CACHE_DIR": str(builds / "triton"),
                "CUDA_CACHE_PATH": str(builds / "cuda"),
            },
        )
        try:
            self._pid = _spawn(request, theirs.fileno(), self._output.fileno())
        except ForkServerError:
            ours.close()
            self._remove()
            raise
        finally:
            theirs.close()
        self._channel: Channel[Reply] = Channel(ours, Reply, limit_bytes=2 * limits.memory_bytes)

    def exchange(
        self, request: Request, storages: Storages, *, timeout_s: float, parts: int = 1
    ) -> tuple[Reply, list[Tensor]]:
        """Send a request, and return the reply and its storages; each of its ``parts`` may take ``timeout_s``.

        Raises
        ------
        EndedError
            The process did not live through it.
        """
        token = secrets.token_bytes(8)
        deadline = monotonic() + timeout_s
        try:
            self._channel.send(token, request, storages.flats, deadline=deadline, watch=self._look)
            answered, reply, flats = self._channel.receive(deadline=deadline, watch=self._look)
            while isinstance(reply, Progress) and answered == token and parts:
                parts -= 1
                deadline = monotonic() + timeout_s
                answered, reply, flats = self._channel.receive(deadline=deadline, watch=self._look)
        except TimeoutError:
            raise self._end(Died(how="hang", detail=f"no answer within {timeout_s:g} s")) from None
        except ClosedError:
            raise self._end(None) from None
        except WireError as error:
            raise self._end(Died(how="protocol", detail=error.message)) from error
        if answered != token or isinstance(reply, Progress):
            raise self.refuse("it answered what it was not asked")
        if isinstance(reply, Dying):
            how = next((known for known in HOW if known == reply.how), "protocol")
            raise self._end(Died(how=how, detail=reply.detail))  # type: ignore[arg-type]
        self._trim()
        return reply, flats

    def refuse(self, why: str) -> EndedError:
        """End a process that has said what it cannot have meant."""
        return self._end(Died(how="protocol", detail=why))

    def close(self) -> None:
        """End the process, with all that it has started, and remove its folder."""
        self._end(Died(how="exit", detail="the judge has closed it"))

    def _look(self) -> None:
        """End the process if it has outgrown its limits.

        Raises
        ------
        EndedError
        """
        members = session_of(self._pid)
        resident = sum(nbytes for pid, nbytes in members if pid == self._pid)
        if len(members) > self._limits.processes:
            raise self._end(Died(how="crash", detail=f"it had {len(members)} processes"))
        if resident > self._limits.memory_bytes + HOST_BYTES:
            raise self._end(Died(how="memory", detail=f"{resident} bytes resident"))

    def _end(self, died: Died | None) -> EndedError:
        """Reap the process; ``died`` None: it is its status that says how it died."""
        status = _reap(self._pid, grace_s=GRACE_S if died is None else 0.0)
        self._channel.close()
        tail = self._tail()
        self._remove()
        found = died or _died_of(status)
        if not tail:
            return EndedError(found)
        return EndedError(Died(how=found.how, detail=f"{found.detail}; its output ends: {tail}"))

    def _tail(self) -> str:
        with contextlib.suppress(OSError):
            size = os.fstat(self._output.fileno()).st_size
            return (
                os.pread(self._output.fileno(), TAIL_BYTES, max(0, size - TAIL_BYTES)).decode(errors="replace").strip()
            )
        return ""

    def _trim(self) -> None:
        """Drop output that nobody will read."""
        if os.fstat(self._output.fileno()).st_size > OUTPUT_BYTES_KEPT:
            os.ftruncate(self._output.fileno(), 0)

    def _remove(self) -> None:
        self._output.close()
        _remove_folder(self._folder)


def _spawn(request: Spawn, connection: int, output: int) -> int:
    """The pid of a new process. Should the one that forks them have ended, another is started, once."""
    for last in (False, True):
        try:
            return launcher().spawn(request, connection=connection, output=output)
        except ForkServerError:
            relaunch()
            if last:
                raise
    raise AssertionError


def _reap(pid: int, *, grace_s: float) -> int | None:
    """A process's status; None where it cannot be had."""
    try:
        return launcher().reap(pid, grace_s=grace_s)
    except ForkServerError:
        relaunch()  # all that were forked from it die with it
        return None


def _died_of(status: int | None) -> Died:
    if status is None:
        return Died(how="crash", detail="it went, and so did the process that it was forked from")
    if status == STATUS_KILLED:
        return Died(how="protocol", detail="it closed its connection")
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = next((known.name for known in signal.Signals if known == number), f"signal {number}")
        return Died(how="crash", detail=f"killed by {name}")
    code = os.WEXITSTATUS(status)
    if code == STATUS_CLOSED:
        return Died(how="protocol", detail="it closed its connection")
    if code == STATUS_DEFECT:
        return Died(how="crash", detail="what runs it could not go on")
    return Died(how="exit", detail=f"it ended with status {code}")


def _remove_folder(folder: Path) -> None:
    """Remove a folder, whatever its permissions have become."""

    def open_up(function: Callable[..., object], path: str, _: object) -> None:
        with contextlib.suppress(OSError):
            Path(path).parent.chmod(0o700)
            Path(path).chmod(0o700)
            function(path)

    shutil.rmtree(folder, onerror=open_up)
