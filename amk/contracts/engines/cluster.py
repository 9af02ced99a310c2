"""Judges on a Ray cluster: the one that ``RAY_ADDRESS`` names or this machine is in, else one that is started here."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from time import monotonic
from types import ModuleType
from typing import Any, Final

import msgspec

from amk.contracts.engines.court import Court, Task
from amk.contracts.errors import NoRayError
from amk.contracts.sources import KernelPair
from amk.contracts.verdicts import Judgement

KERNELS_PER_WORKER: Final = 100
"""A Ray worker is replaced behind so many, so that what it might leak does not add up."""


class RayEngine:
    """Judges kernels as Ray tasks, one processor each, and a part of a GPU where they need one.

    Raises
    ------
    NoRayError
        Ray is not installed.
    """

    def __init__(self, court: Court, *, jobs: int | None = None) -> None:
        self._court = court
        self._ray = _import_ray()
        self._ours = not self._ray.is_initialized()
        if self._ours:
            _connect(self._ray, jobs)
        resources = self._ray.cluster_resources()
        self._jobs = jobs or max(1, int(resources.get("CPU", 1)))
        self._gpus = min(1.0, resources.get("GPU", 0.0) / self._jobs) if court.options.device == "cuda" else 0.0

    @property
    def jobs(self) -> int:
        return self._jobs

    def judge(self, tasks: Iterable[Task]) -> Generator[tuple[Task, Judgement], None, None]:
        """Judge all of ``tasks``; as many are submitted as are judged at a time, so that a limit is of one kernel."""
        ray = self._ray
        # A kernel that ends its judge would do it again: no retries.
        remote = ray.remote(num_cpus=1, num_gpus=self._gpus, max_retries=0, max_calls=KERNELS_PER_WORKER)(_try_kernel)
        court = ray.put(self._court)
        waiting = iter(tasks)
        running: dict[Any, tuple[Task, float]] = {}
        try:
            while True:
                while len(running) < self._jobs and (task := next(waiting, None)) is not None:
                    reference = remote.remote(court, msgspec.msgpack.encode(task.kernel))
                    running[reference] = task, monotonic() + self._court.limit_s
                if not running:
                    return
                left = max(0.0, min(deadline for _, deadline in running.values()) - monotonic())
                done, _ = ray.wait(list(running), num_returns=1, timeout=left)
                for reference in done or [min(running, key=lambda each: running[each][1])]:
                    task, _ = running.pop(reference)
                    yield task, self._result(reference, task)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)
            if self._ours:
                ray.shutdown()

    def _result(self, reference: Any, task: Task) -> Judgement:
        ray = self._ray
        try:
            return msgspec.msgpack.decode(ray.get(reference, timeout=0), type=Judgement)
        except ray.exceptions.GetTimeoutError:
            ray.cancel(reference, force=True)
            why = f"the judge had not come back after {self._court.limit_s:g} s"
        except ray.exceptions.RayError as error:
            why = f"the judge's Ray worker ended: {str(error).splitlines()[0]}"
        return self._court.not_judged(task.kernel.name, why)


def _try_kernel(court: Court, kernel: bytes) -> bytes:
    """One task, in a Ray worker."""
    return msgspec.msgpack.encode(court.try_kernel(msgspec.msgpack.decode(kernel, type=KernelPair)))


def _import_ray() -> ModuleType:
    try:
        import ray
        import ray.exceptions
    except ImportError as error:
        raise NoRayError(why=error) from error
    module: ModuleType = ray
    return module


def _connect(ray: ModuleType, jobs: int | None) -> None:
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        ray.init(address="auto", **quiet)
    except ConnectionError:
        ray.init(address="local", num_cpus=jobs, include_dashboard=False, **quiet)
