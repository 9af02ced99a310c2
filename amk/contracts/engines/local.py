"""Judges in processes of this machine, each with a connection of its own to the process that holds the journal."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Generator, Iterable
from multiprocessing.connection import Connection, wait
from multiprocessing.process import parent_process
from time import monotonic
from typing import Final

import msgspec

from amk.contracts.engines.court import Court, Task
from amk.contracts.sources import KernelPair
from amk.contracts.verdicts import Judgement

KERNELS_PER_JUDGE: Final = 100
"""A judge is replaced behind so many, so that what it might leak does not add up."""

START_S: Final = 120.0
STOP_S: Final = 5.0

READY: Final = b"ready"
"""What a judge says first: from then on the time that it takes is its kernel's."""

_SPAWN: Final = multiprocessing.get_context("spawn")  # a fork would take the caller's threads and locks along


class LocalEngine:
    """Judges kernels in ``jobs`` processes of this machine."""

    def __init__(self, court: Court, *, jobs: int | None = None) -> None:
        self._court = court
        self._jobs = jobs or len(os.sched_getaffinity(0))

    @property
    def jobs(self) -> int:
        return self._jobs

    def judge(self, tasks: Iterable[Task]) -> Generator[tuple[Task, Judgement], None, None]:
        """Judge all of ``tasks``, of which no more are taken than there are judges."""
        waiting = iter(tasks)
        idle: list[_Judge] = []
        busy: list[_Judge] = []
        with tempfile.TemporaryDirectory(prefix="amk-audit-", ignore_cleanup_errors=True) as scratch:
            try:
                while True:
                    while len(busy) < self._jobs and (task := next(waiting, None)) is not None:
                        judge = idle.pop() if idle else _Judge(self._court, scratch)
                        busy.append(judge)
                        judge.take(task)
                    if not busy:
                        return
                    for judge in _back(busy):
                        busy.remove(judge)
                        result = judge.give()
                        if judge.is_usable:
                            idle.append(judge)
                        else:
                            judge.stop()
                        yield result
            finally:
                for judge in (*idle, *busy):
                    judge.stop()


class _Judge:
    """One process, and the task that it has.

    ``deadline`` is when the task, or the process's start, is given up; ``scratch`` is where its temporary files go, so
    that a judge that is killed leaves none.
    """

    def __init__(self, court: Court, scratch: str) -> None:
        self._court = court
        self.connection, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_serve, args=(theirs, court, scratch), name="amk judge")
        self._process.start()
        theirs.close()
        self._task: Task | None = None
        self._taken = 0
        self._answer = b""
        self._ended = False
        self.deadline = monotonic() + START_S
        self._started = False

    @property
    def is_usable(self) -> bool:
        return not self._ended and self._taken < KERNELS_PER_JUDGE

    def take(self, task: Task) -> None:
        """Send a task. That the process is gone shows when its answer is waited for."""
        self._task = task
        self._taken += 1
        if self._started:
            self.deadline = monotonic() + self._court.limit_s
        with contextlib.suppress(OSError):
            self.connection.send_bytes(msgspec.msgpack.encode(task.kernel))

    def is_done(self) -> bool:
        """Read what has come; whether that ends the task."""
        try:
            self._answer = self.connection.recv_bytes()
        except (EOFError, OSError):
            self._ended = True
        if self._answer == READY:
            self._answer = b""
            self._started = True
            self.deadline = monotonic() + self._court.limit_s
        return self._ended or bool(self._answer)

    def give(self) -> tuple[Task, Judgement]:
        """The task, and its judgement if there is one by now."""
        task, self._task = self._task, None
        answer, self._answer = self._answer, b""
        assert task is not None
        if answer:
            return task, msgspec.msgpack.decode(answer, type=Judgement)
        if self._ended:
            self._process.join(STOP_S)
            why = f"the judge's process ended: {_ending(self._process.exitcode)}"
        else:
            self._ended = True
            why = f"the judge had not come back after {self._court.limit_s if self._started else START_S:g} s"
        return task, self._court.not_judged(task.kernel.name, why)

    def stop(self) -> None:
        """End the process; one that is waiting for a task ends by itself when the connection closes."""
        if self._task is None and not self._ended:
            self.connection.close()
            self._process.join(STOP_S)
        if self._process.is_alive():
            _kill_group(self._process.pid)
            self._process.kill()
            self._process.join()
        self.connection.close()
        self._process.close()


def _back(busy: list[_Judge]) -> list[_Judge]:
    """Judges that have answered, ended, or run out of time; at least one."""
    while True:
        left = max(0.0, min(judge.deadline for judge in busy) - monotonic())
        ready = wait([judge.connection for judge in busy], timeout=left)
        now = monotonic()
        back = [judge for judge in busy if (judge.is_done() if judge.connection in ready else judge.deadline <= now)]
        if back:
            return back


def _serve(connection: Connection, court: Court, scratch: str) -> None:
    """Be a judge, until the connection closes."""
    import torch

    tempfile.tempdir = scratch

    os.setsid()  # an interrupt at the terminal is the parent's to deal with
    torch.set_num_threads(1)  # the other processors have judges of their own
    threading.Thread(target=_end_with_parent, daemon=True).start()
    connection.send_bytes(READY)
    while True:
        try:
            kernel = msgspec.msgpack.decode(connection.recv_bytes(), type=KernelPair)
        except (EOFError, OSError):
            return
        connection.send_bytes(msgspec.msgpack.encode(court.try_kernel(kernel)))


def _end_with_parent() -> None:
    """A parent that was killed leaves nothing running: its judges would judge for no one."""
    if (parent := parent_process()) is not None:
        wait([parent.sentinel])
        _kill_group(os.getpid())


def _kill_group(pid: int | None) -> None:
    """Kill a judge and what shares its session; its kernels' processes end when it does."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if pid is not None and os.getpgid(pid) == pid:
            os.killpg(pid, signal.SIGKILL)


def _ending(code: int | None) -> str:
    if code is None:
        return "it closed its connection"
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"
