"""The judge's side of the process that kernels are forked from."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Final

import msgspec

from amk.contracts.errors import ForkServerError
from amk.contracts.harness.protocol import Reap, Spawn
from amk.settings import environment

START_S: Final = 120.0
ANSWER_S: Final = 30.0
BOOT: Final = "import sys; sys.path[:0] = {paths!r}; from amk.contracts.harness.zygote import main; main({descriptor})"
ENVIRONMENT: Final = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",  # in the kernel's process, without a pool of others beside it
    # glibc hands small blocks out again from a list of each thread's, past the hook that fills fresh memory.
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
    # torch then asks the driver's library whether there is a device: CUDA, once asked, does not live through a fork.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}


class Launcher:
    """Starts and ends kernels' processes; one a judge, made when it is first needed."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        self._lock = threading.Lock()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process that writes it
        boot = BOOT.format(paths=[str(Path(__file__).resolve().parents[3])], descriptor=theirs.fileno())
        self._process = subprocess.Popen(
            [sys.executable, "-c", boot],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            env=environment() | ENVIRONMENT,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        try:
            self._answer(START_S)
        except ForkServerError:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Of the process that kernels are forked from."""
        return self._process.pid

    def spawn(self, request: Spawn, *, connection: int, output: int) -> int:
        """Start a process for a kernel and return its pid; ``connection`` and ``output`` are descriptors for it.

        Raises
        ------
        ForkServerError
        """
        with self._lock:
            self._send(request, [connection, output])
            pid = self._answer(ANSWER_S)
        if pid < 0:
            raise ForkServerError(why=f"it cannot fork: {os.strerror(-pid)}")
        return pid

    def reap(self, pid: int, *, grace_s: float) -> int:
        """Kill a process with all that it started, and return its status; see ``Reap``.

        Raises
        ------
        ForkServerError
        """
        with self._lock:
            self._send(Reap(pid=pid, grace_s=grace_s), [])
            return self._answer(ANSWER_S)

    def _send(self, request: object, descriptors: list[int]) -> None:
        try:
            socket.send_fds(self._socket, [msgspec.msgpack.encode(request)], descriptors)
        except OSError as error:
            raise ForkServerError(why=self._tail() or error) from error

    def _answer(self, timeout_s: float) -> int:
        self._socket.settimeout(timeout_s)
        try:
            return msgspec.msgpack.decode(self._socket.recv(64), type=int)
        except (OSError, msgspec.MsgspecError) as error:
            raise ForkServerError(why=self._tail() or f"no answer within {timeout_s:g} s ({error})") from error

    def _tail(self) -> str:
        size = self._output.seek(0, os.SEEK_END)
        self._output.seek(max(0, size - 2000))
        return self._output.read().decode(errors="replace").strip()

    def close(self) -> None:
        """End the process, and with it all kernels' processes."""
        self._socket.close()
        try:
            self._process.wait(timeout=ANSWER_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._output.close()

    def forget(self) -> None:
        """Let go of a process that is another judge's: what a fork of the judge does."""
        self._socket.close()
        self._output.close()


_launcher: Launcher | None = None
_launching = threading.Lock()


def launcher() -> Launcher:
    """The launcher of this process.

    Raises
    ------
    ForkServerError
    """
    global _launcher  # noqa: PLW0603 - one a process, as its connection is
    with _launching:
        if _launcher is None:
            _launcher = Launcher()
        return _launcher


def relaunch() -> None:
    """Drop a launcher whose process has ended; the next kernel starts another."""
    global _launcher  # noqa: PLW0603
    with _launching:
        if _launcher is not None:
            with contextlib.suppress(OSError):
                _launcher.close()
        _launcher = None


def _forget_in_a_fork() -> None:
    global _launcher, _launching  # noqa: PLW0603
    _launching = threading.Lock()
    if _launcher is not None:
        _launcher.forget()
    _launcher = None


os.register_at_fork(after_in_child=_forget_in_a_fork)
atexit.register(relaunch)
