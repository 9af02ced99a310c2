"""What an engine is told: how to judge, and one kernel after the other."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from amk.contracts.sources import KernelPair
from amk.contracts.verdicts import Judgement
from amk.errors import AmkError

if TYPE_CHECKING:
    from amk.contracts.verify import Options

logger = logging.getLogger(__name__)

Judge: TypeAlias = "Callable[[KernelPair, Options], Judgement]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One kernel to judge; ``key`` is the caller's own."""

    key: str
    kernel: KernelPair


@dataclass(frozen=True, slots=True, kw_only=True)
class Court:
    """How kernels are judged; goes to other processes.

    Attributes
    ----------
    judge
        ``module.path:function``, a ``Judge``.
    limit_s
        Seconds after which a judge is given up, together with the kernel that it has.
    """

    judge: str
    options: Options
    limit_s: float

    def try_kernel(self, kernel: KernelPair) -> Judgement:
        """Judge ``kernel`` in this process; what the judge raises is a kernel that was not judged."""
        try:
            return self._judge()(kernel, self.options)
        except AmkError as error:
            return self.not_judged(kernel.name, str(error))
        except Exception as error:
            logger.exception("the judge of %s failed", kernel.name)
            return self.not_judged(kernel.name, f"the judge failed, a defect in amk: {type(error).__name__}: {error}")

    def not_judged(self, kernel: str, why: str) -> Judgement:
        """A judgement of no gate."""
        options = self.options
        return Judgement(
            kernel=kernel,
            status="not judged",
            why=why,
            findings=(),
            device=options.device,
            dtype=options.dtype,
            seed=options.seed,
            seconds=0.0,
        )

    def _judge(self) -> Judge:
        module, _, name = self.judge.partition(":")
        judge: Judge = getattr(importlib.import_module(module), name)
        return judge


class Engine(Protocol):
    """Judges kernels, several at a time."""

    def judge(self, tasks: Iterable[Task]) -> Generator[tuple[Task, Judgement], None, None]:
        """Judge all of ``tasks``; each comes back once. Closing the iterator ends what is under way."""

    @property
    def jobs(self) -> int:
        """Kernels that are judged at a time."""
