"""Where a step's time goes: a stamped kernel says of each task when it ran, and hops are told apart from work.

A launch is a chain of hops; all tasks of one wait for all of the one before. Of each hop, from the moment at which the
last task before it was published to the moment at which its own last one is::

    hop       until the median task knows that its waits are over
    starved   of the median task, waiting for its stream
    work      of the median task, the rest
    skew      from the median task's end to the last one's

Their sum over the hops is the step.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import torch
from numpy.typing import NDArray

from amk.codegen import abi
from amk.errors import BadOptionError
from amk.ir.record import Record
from amk.runtime.launch import KernelBackend, Stamps

if TYPE_CHECKING:
    from amk.runtime.model import CompiledModel
    from amk.runtime.session import Session

TAKEN, READY, MET, DONE, STARVED = range(5)
_WORDS: Final = len(abi.TIMES.fields)
_CLOCK_WORDS: Final = len(abi.CLOCKS.fields)

PARTS: Final = ("hop", "starved", "work", "skew")


class HopTimes(Record):
    """Microseconds of the hops of one kind, each part summed over a step's, averaged over the steps.

    ``name`` is the hop's without its layer, ``count`` how many a step has.
    """

    name: str
    count: int
    hop: float
    starved: float
    work: float
    skew: float

    @property
    def total(self) -> float:
        """Microseconds of a step."""
        return self.hop + self.starved + self.work + self.skew


class Summary(Record):
    """A profile in figures.

    Attributes
    ----------
    context, steps
        Positions before the first step, and steps that were stamped.
    us_per_token, us_per_token_stamped
        Wall clock of one launch over its steps, as the kernel ships and while it stamps.
    same_bits
        Whether the two gave the same tokens and logits.
    hops
        In the order in which a step runs them.
    """

    context: int
    steps: int
    us_per_token: float
    us_per_token_stamped: float
    same_bits: bool
    hops: tuple[HopTimes, ...]

    def share(self, part: str) -> float:
        """Of the stamped time, what ``part`` takes: 0 to 1."""
        spent: float = sum(getattr(hop, part) for hop in self.hops)
        return spent / sum(hop.total for hop in self.hops)


@dataclass(frozen=True, slots=True)
class Profile:
    """``times`` are [step, task, 5] in nanoseconds since the launch began: four moments, and the time starved."""

    summary: Summary
    names: tuple[str, ...]
    worker: tuple[int, ...]
    times: NDArray[np.float64]

    def write_trace(self, path: Path, *, steps: int = 2) -> None:
        """The last ``steps`` steps for Perfetto or chrome://tracing: a row a worker, microseconds."""
        events = []
        for step in range(max(0, len(self.times) - steps), len(self.times)):
            for name, worker, stamp in zip(self.names, self.worker, self.times[step] / 1e3, strict=True):
                common = {"ph": "X", "pid": 0, "tid": worker}
                wait, work = stamp[READY] - stamp[TAKEN], stamp[DONE] - stamp[READY]
                args = {"step": step, "starved_us": round(float(stamp[STARVED]), 3)}
                events.append({**common, "name": "wait", "ts": float(stamp[TAKEN]), "dur": float(wait)})
                events.append({**common, "name": name, "ts": float(stamp[READY]), "dur": float(work), "args": args})
        path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}), encoding="utf-8")


def profile(model: CompiledModel, *, context: int, tokens: int) -> Profile:
    """Decode ``tokens`` tokens in one launch behind ``context`` positions of no meaning, twice: plain and stamped.

    Raises
    ------
    BadOptionError
        It was compiled for the reference machine, which has no kernel.
    ContextOverflowError, DeviceError
    """
    if model.arch == "cpu":
        raise BadOptionError(
            option="arch", value="cpu", why="the reference machine runs no kernel", fix="use host, or a GPU's arch"
        )
    prompt = [(7 * at * at + 3) % model.graph.vocab for at in range(context)]
    plain, stamped = model.session, model.open_session(stamped=True)
    try:
        us, made, logits = _timed(plain, prompt, tokens)
        backend = stamped.backend
        assert isinstance(backend, KernelBackend)
        workers, tasks = len(model.schedule.queues), len(model.schedule.tasks)
        clocks = np.zeros((workers, 2, _CLOCK_WORDS), dtype=np.uint64)
        times = np.zeros((tokens, tasks, _WORDS), dtype=np.uint64)
        first = stamped.prefill(prompt, new_tokens=tokens + 1)
        backend.stamps = Stamps(clocks=backend.chip.memory(clocks.nbytes), times=backend.chip.memory(times.nbytes))
        began = time.perf_counter()
        ours = [first, *stamped.decode(tokens)]
        us_stamped = (time.perf_counter() - began) / tokens * 1e6
        same = ours == made and torch.equal(stamped.logits(), logits)
        backend.chip.download(backend.stamps.clocks, clocks)
        backend.chip.download(backend.stamps.times, times)
        names = tuple(name for queue in model.schedule.queues for name in queue.tasks)
        worker = tuple(number for number, queue in enumerate(model.schedule.queues) for _ in queue.tasks)
    finally:
        stamped.backend.close()
    stamps = _nanoseconds(times[: len(ours) - 1], clocks, np.array(worker))
    summary = Summary(
        context=context,
        steps=len(stamps),
        us_per_token=us,
        us_per_token_stamped=us_stamped,
        same_bits=same,
        hops=_hops(stamps, names),
    )
    return Profile(summary=summary, names=names, worker=worker, times=stamps)


def _timed(session: Session, prompt: list[int], tokens: int) -> tuple[float, list[int], torch.Tensor]:
    first = session.prefill(prompt, new_tokens=tokens + 1)
    began = time.perf_counter()
    made = [first, *session.decode(tokens)]
    return (time.perf_counter() - began) / tokens * 1e6, made, session.logits()


def _nanoseconds(
    times: NDArray[np.uint64], clocks: NDArray[np.uint64], worker: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Ticks of each worker's clock to nanoseconds of the shared one: by the two moments at which both were read."""
    shared, own = clocks[:, :, 0].astype(np.int64), clocks[:, :, 1].astype(np.int64)
    rate = (shared[:, 1] - shared[:, 0]) / np.maximum(own[:, 1] - own[:, 0], 1)
    start = (shared[:, 0] - shared[:, 0].min()).astype(np.float64)
    found = np.empty((*times.shape[:2], 5))
    for moment in (TAKEN, READY, MET, DONE):
        ticks = times[:, :, moment].astype(np.int64) - own[worker, 0]
        found[:, :, moment] = start[worker] + ticks * rate[worker]
    found[:, :, STARVED] = times[:, :, STARVED].astype(np.float64) * rate[worker]
    return found


def _hops(stamps: NDArray[np.float64], names: tuple[str, ...]) -> tuple[HopTimes, ...]:
    members: dict[str, list[int]] = defaultdict(list)
    for at, name in enumerate(names):
        members[name.split("#")[0]].append(at)
    ends = {hop: stamps[:, tasks, DONE].max(axis=1) for hop, tasks in members.items()}
    order = sorted((hop for hop in members if hop != "begin"), key=lambda hop: float(ends[hop][-1]))
    parts: dict[str, NDArray[np.float64]] = defaultdict(lambda: np.zeros(4))
    count: dict[str, int] = defaultdict(int)
    before = stamps[:, :, TAKEN].min(axis=1)
    before[1:] = ends[order[-1]][:-1]
    for hop in order:
        mine = stamps[:, members[hop]]
        ready, done, starved = (np.median(mine[:, :, what], axis=1) for what in (READY, DONE, STARVED))
        kind = hop.rsplit(".", 1)[-1]
        count[kind] += 1
        spent = np.stack([ready - before, starved, done - ready - starved, ends[hop] - done])
        parts[kind] += spent.mean(axis=1) / 1e3
        before = ends[hop]
    return tuple(
        HopTimes(name=kind, count=count[kind], **dict(zip(PARTS, map(float, spent), strict=True)))
        for kind, spent in parts.items()
    )
