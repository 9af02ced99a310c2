"""An audit: many kernels through the gates, on a journal, with a report at the end.

It may be killed at any moment and run again: no kernel that is in the journal is judged twice, and the report is what
an uninterrupted audit would have written, its timings apart.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from filelock import FileLock, Timeout

import amk
from amk.contracts.engines import Court, EngineName, Task, engine_of
from amk.contracts.errors import AuditRunningError
from amk.contracts.forms import Work, WorkList
from amk.contracts.gates import gates
from amk.contracts.journal import OUT_FIX, Journal, Terms
from amk.contracts.report import Heading, machine, write_report
from amk.contracts.report.pages import PAGES
from amk.contracts.report.statistics import Statistics
from amk.errors import BadOptionError, UnwritablePathError
from amk.sources import sources_digest

if TYPE_CHECKING:
    from amk.contracts.verdicts import Judgement
    from amk.contracts.verify import Options

JOURNAL: Final = "journal.jsonl"
LOCK: Final = ".lock"

JUDGE: Final = "amk.contracts.verify:judge_kernel"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A kernel that has just been judged: ``done`` of ``total`` are."""

    done: int
    total: int
    judgement: Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What came of an audit.

    Attributes
    ----------
    resumed
        Kernels that the journal had before.
    complete
        False where it was interrupted.
    """

    out: Path
    statistics: Statistics
    resumed: int
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to audit, and how.

    Attributes
    ----------
    source
        What the kernels were read from; for the report.
    limit
        Only the first so many.
    jobs
        Kernels judged at a time; None for one a processor.
    fresh
        Judge all anew, whatever the journal has.
    judge
        ``module.path:function``, which takes a ``KernelPair`` and ``Options``.
    limit_s
        Seconds after which a kernel's judge is given up; None for more than the options let it take.
    """

    works: WorkList
    source: Path
    options: Options
    out: Path
    limit: int | None = None
    jobs: int | None = None
    engine: EngineName = "local"
    fresh: bool = False
    judge: str = JUDGE
    limit_s: float | None = None

    def __iter__(self) -> Iterator[Work]:
        return islice(iter(self.works), self.limit)

    @property
    def total(self) -> int:
        return len(self.works) if self.limit is None else min(self.limit, len(self.works))

    @property
    def court(self) -> Court:
        """What engines are told."""
        return Court(judge=self.judge, options=self.options, limit_s=self.limit_s or _limit_s(self.options))

    @property
    def terms(self) -> Terms:
        """What the judgements depend on, beside the kernels."""
        plain = msgspec.structs.asdict(self.options)
        return Terms(
            options={name: str(value) for name, value in plain.items()}, gates_digest=sources_digest("contracts")
        )


def audit(plan: Plan, *, note: Callable[[Step], None] = lambda step: None) -> Audit:
    """Judge all kernels of ``plan`` that its journal does not have, and write the report.

    An interrupt (Ctrl-C) ends the judging; the report is then of the kernels that were judged by that time.

    Parameters
    ----------
    note
        Called for each kernel when it has been judged.

    Raises
    ------
    JournalOptionsError, JournalUnreadableError, AuditRunningError, UnwritablePathError
        ``plan.out`` cannot be used.
    NoRayError
        The engine is Ray, and that is not installed.
    """
    _check_place(plan)
    started = time.monotonic()
    with _only_writer(plan.out), Journal(plan.out / JOURNAL, plan.terms, fresh=plan.fresh) as journal:
        run = _Run(plan, journal)
        resumed = sum(1 for work in plan if run.key(work) in journal)
        complete = True
        try:
            run.judge(resumed, note)
        except KeyboardInterrupt:
            complete = False
            logger.warning("interrupted; the report has what is done")
        found = write_report(
            plan.out,
            run.done(),
            run.heading(complete=complete),
            timings={
                "written": datetime.now(UTC).isoformat(timespec="seconds"),
                "engine": plan.engine,
                "jobs": plan.jobs,
                "resumed": resumed,
                "wall_s": round(time.monotonic() - started, 3),
            },
        )
    return Audit(out=plan.out, statistics=found, resumed=resumed, complete=complete)


class _Run:
    """A plan and its journal."""

    def __init__(self, plan: Plan, journal: Journal) -> None:
        self._plan = plan
        self._journal = journal
        self._terms = plan.terms
        self._court = plan.court

    def key(self, work: Work) -> str:
        """What the work's line in the journal is found by."""
        source = work.why.encode(errors="replace") if work.kernel is None else msgspec.msgpack.encode(work.kernel)
        return self._terms.key(work.name, source)

    def judge(self, done: int, note: Callable[[Step], None]) -> None:
        """Judge what the journal does not have."""
        engine = engine_of(self._plan.engine, self._court, jobs=self._plan.jobs)
        with contextlib.closing(engine.judge(self._tasks())) as judgements:
            for task, judgement in judgements:
                self._journal.append(task.key, judgement)
                done += 1
                note(Step(done=done, total=self._plan.total, judgement=judgement))

    def _tasks(self) -> Iterator[Task]:
        """Kernels for the engine; an entry that cannot be read is judged by that, here."""
        for work in self._plan:
            key = self.key(work)
            if key in self._journal:
                continue
            if work.kernel is None:
                self._journal.append(key, self._court.not_judged(work.name, work.why))
            else:
                yield Task(key=key, kernel=work.kernel)

    def done(self) -> Iterator[tuple[Work, Judgement]]:
        """All that is in the journal, in the order of the work list."""
        for work in self._plan:
            if (key := self.key(work)) in self._journal:
                yield work, self._journal.read(key)

    def heading(self, *, complete: bool) -> Heading:
        plan = self._plan
        return Heading(
            source=str(plan.source),
            amk=amk.__version__,
            gates_digest=self._terms.gates_digest,
            options=msgspec.structs.asdict(plan.options),
            machine=machine(plan.options.device),
            names={gate.id: gate.name for gate in gates()},
            total=plan.total,
            complete=complete,
        )


def _limit_s(options: Options) -> float:
    """More than a judge can take: both sides loaded twice, every gate at the end of its time when it asks once more."""
    return 4 * options.load_timeout_s + 2 * options.budget_s + 20 * max(options.timeout_s, options.first_timeout_s)


def _check_place(plan: Plan) -> None:
    """Refuse to write sources of kernels where the next audit would take them for kernels."""
    pages, source = (plan.out / PAGES).resolve(), plan.source.resolve()
    if source.is_dir() and (pages == source or source in pages.parents):
        why = f"it would write into {plan.source}, which it reads"
        raise BadOptionError(option="--out", value=str(plan.out), why=why, fix="choose a folder outside of it")


@contextlib.contextmanager
def _only_writer(out: Path) -> Iterator[None]:
    """Hold the folder: two audits would tear each other's journal."""
    lock = FileLock(out / LOCK, timeout=0)
    try:
        out.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise AuditRunningError(path=out) from error
    except OSError as error:
        raise UnwritablePathError(path=out, why=error.strerror or error, fix=OUT_FIX) from error
    try:
        yield
    finally:
        lock.release()
