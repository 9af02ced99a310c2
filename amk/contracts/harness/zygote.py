"""The process that kernels' processes are forked from: torch is loaded in it once, and nothing else ever runs.

It is started by ``amk.contracts.harness.launcher``, answers one request at a time, and ends when its judge does.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import shutil
import signal
import socket
import time
from typing import Final

import msgspec
import torch

from amk.contracts.harness import child, limits
from amk.contracts.harness.confine import confine
from amk.contracts.harness.protocol import STATUS_DEFECT, STATUS_KILLED, Reap, Spawn

PRELOADED: Final = ("numpy", "torch.utils.cpp_extension", "torch._dynamo")
"""The last of them torch would import at the first operation under a dispatch mode, which poisoning is."""

ON_DEVICES: Final = ("triton", "triton.language")
"""Preloaded where torch is built for devices, if they are there; none of them touches one when imported."""


REQUEST_BYTES_MAX: Final = 1 << 16
POLL_S: Final = 0.001


class Zygote:
    """Answers the judge at the other end of ``connection``."""

    def __init__(self, connection: socket.socket) -> None:
        self._judge = connection
        self._living: dict[int, str] = {}
        self._decoder = msgspec.msgpack.Decoder(Spawn | Reap)

    def serve(self) -> None:
        """Answer until the judge is gone."""
        self._judge.send(msgspec.msgpack.encode(os.getpid()))
        while True:
            data, descriptors, _, _ = socket.recv_fds(self._judge, REQUEST_BYTES_MAX, 2)
            if not data:
                break
            request = self._decoder.decode(data)
            result = (
                self._spawn(request, *descriptors)
                if isinstance(request, Spawn)
                else self._reap(request.pid, request.grace_s)
            )
            self._judge.send(msgspec.msgpack.encode(result))
        for pid, folder in list(self._living.items()):
            self._reap(pid, 0.0)
            shutil.rmtree(folder, ignore_errors=True)  # which the judge had no time to do

    def _spawn(self, request: Spawn, connection: int, output: int) -> int:
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(connection)
            os.close(output)
            return -(error.errno or 1)
        if pid == 0:
            try:
                limits.leave_parent(parent)
                _become_kernel(request, connection, output)
            finally:
                os._exit(STATUS_DEFECT)
        os.close(connection)
        os.close(output)
        self._living[pid] = request.folder
        return pid

    def _reap(self, pid: int, grace_s: float) -> int:
        if pid not in self._living:
            return STATUS_KILLED
        ended = _ends_within(pid, grace_s)
        limits.kill_all(pid)  # the process itself, or what is left of its group
        _, status = os.waitpid(pid, 0)
        del self._living[pid]
        self._end_strays()
        return status if ended else STATUS_KILLED

    def _end_strays(self) -> None:
        """Kill what ended kernels have left: such processes were adopted by this one."""
        while strays := [pid for pid in limits.children_of(os.getpid()) if pid not in self._living]:
            for pid in strays:
                limits.kill_all(pid)
            for pid in strays:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)


def _ends_within(pid: int, grace_s: float) -> bool:
    """Whether a child ends by itself; it is not waited for, so that its pid and its group stay its own."""
    deadline = time.monotonic() + grace_s
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True


def _become_kernel(request: Spawn, connection: int, output: int) -> None:
    """Turn a fork of the zygote into a kernel's process, and serve the judge; does not return."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    limits.close_all_but(connection)
    os.chdir(request.folder)
    limits.limit_files(request.address_bytes or 0)
    if request.address_bytes is not None:
        limits.limit_memory(request.address_bytes)
    confine((request.folder, *request.removable))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    child.serve(socket.socket(fileno=connection), request.environment)


def main(descriptor: int) -> None:
    """Load what all kernels need, then serve the judge that is connected to ``descriptor``."""
    limits.adopt_orphans()
    torch.set_num_threads(1)  # a pool of threads would not live through a fork
    for name in (*PRELOADED, *(ON_DEVICES if torch.version.cuda else ())):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    Zygote(socket.socket(fileno=descriptor)).serve()
