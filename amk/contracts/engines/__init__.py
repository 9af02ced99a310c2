"""Where the kernels of a work list are judged: in processes of this machine, or on a Ray cluster.

An engine takes kernels in order and gives judgements as they are made, in any order. A judge that dies, or that does
not come back, costs the kernel that it had: what is said of that kernel is then that it was not judged.
"""

from __future__ import annotations

from typing import Literal

from amk.contracts.engines.court import Court, Engine, Task
from amk.contracts.engines.local import LocalEngine

__all__ = ["Court", "Engine", "EngineName", "LocalEngine", "Task", "engine_of"]

EngineName = Literal["local", "ray"]


def engine_of(name: EngineName, court: Court, *, jobs: int | None) -> Engine:
    """The engine called ``name``.

    Parameters
    ----------
    jobs
        Kernels that are judged at a time; None for one a processor.

    Raises
    ------
    NoRayError
        It is ``ray``, and that is not installed.
    """
    if name == "local":
        return LocalEngine(court, jobs=jobs)
    from amk.contracts.engines.cluster import RayEngine

    return RayEngine(court, jobs=jobs)
