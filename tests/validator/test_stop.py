"""What is refused of the stop that a sampler writes, and of streams."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from amk.ir.regions import Region
from amk.ir.schedule import Queue, Schedule, Stream
from amk.ir.tasks import Sample
from amk.validator import validate
from tests.validator.changes import with_op, with_task
from tests.validator.test_refusals import BASE, _of, said


def _sampler() -> Any:
    return _of(Sample)


def _without(name: str) -> Schedule:
    queues = tuple(replace(q, tasks=tuple(one for one in q.tasks if one != name)) for q in BASE.queues)
    return replace(BASE, tasks=tuple(one for one in BASE.tasks if one.id != name), queues=queues)


def _with_twin(of: str) -> Schedule:
    twin = replace(BASE.task[of], id="twin")
    home = next(queue for queue in BASE.queues if of in queue.tasks)
    grown = Queue(index=home.index, tasks=(*home.tasks, "twin"))
    return replace(BASE, tasks=(*BASE.tasks, twin), queues=tuple(grown if old is home else old for old in BASE.queues))


def _begin(**changes: Any) -> Schedule:
    chosen = BASE.tasks[0]
    return with_op(BASE, chosen, replace(chosen.op, stop=replace(chosen.op.stop, **changes)))


STOP = {
    "no sampler": (_without(_sampler().id), "0 tasks sample"),
    "two samplers": (_with_twin(_sampler().id), "2 tasks sample"),
    "no Begin": (_without("begin#1"), "the queue of worker 1 does not open with Begin"),
    "two Begins": (_with_twin("begin#1"), "twin (worker 1) is a second Begin in one queue"),
    "stop of this step": (_begin(lag=0), "the step would have begun"),
    "another stop": (_begin(buffer="best_index"), "reads best_index, which the sampler does not set"),
    "two owners": (_with_twin(_sampler().id), "both write stop"),
}


@pytest.mark.parametrize("name", STOP)
def test_stop(name: str) -> None:
    schedule, text = STOP[name]
    verdict = validate(schedule)
    assert said(verdict, "AMK-V311", text), [str(finding) for finding in verdict.findings]


def test_streams_of_strangers() -> None:
    chosen = next(task for task in BASE.tasks if task.streams)
    more = Stream(region=Region(buffer="nobody", box=((0, 1),)))
    verdict = validate(with_task(BASE, replace(chosen, streams=(*chosen.streams, more))))
    assert said(verdict, "AMK-V315", "there is no such buffer")
