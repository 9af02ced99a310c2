"""Size: a schedule of Llama-3.1-8B for a whole chip is proved in seconds, and every pair of it is looked at."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from amk.target import TARGETS
from amk.validator import AccessModel, Node, validate, validate_model
from tests.builders import llama_graph, lower
from tests.validator.notation import read, state, task, write

LAYERS = 32

# Ten times what a quiet core needs: the test is about the kind of growth, not about the machine.
SECONDS_MAX = 20.0


def test_a_large_model_on_a_large_chip() -> None:
    graph = llama_graph(
        hidden=4096,
        layers=LAYERS,
        heads=32,
        kv_heads=8,
        head_dim=128,
        intermediate=14_336,
        vocab=128_256,
        tied=False,
    )
    verdict = validate(lower(graph, TARGETS["h200"], max_context=8192))
    assert verdict.proved, [str(finding) for finding in verdict.findings]
    assert verdict.statistics["tasks"] > 18_000
    assert verdict.statistics["checks"] > 1_000_000
    assert verdict.seconds < SECONDS_MAX


@pytest.mark.parametrize("change", ["as it is", "no waits"])
def test_memory_is_bounded_by_chunks_that_change_nothing(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = lower(llama_graph(), workers=5)
    if change == "no waits":
        schedule = replace(schedule, tasks=tuple(replace(task, waits=task.waits[:0]) for task in schedule.tasks))
    whole = validate(schedule)
    for chunk in ("amk.validator.boxes.CHUNK", "amk.validator.rules.race.CHUNK"):
        monkeypatch.setattr(chunk, 3)
    cut = validate(schedule)
    assert (cut.outcome, cut.statistics) == (whole.outcome, whole.statistics)
    assert cut.codes() == whole.codes()
    assert whole.proved == (change == "as it is")


def ring(length: int) -> AccessModel:
    """Two workers hand a word back and forth: no two tasks are ever ready together."""
    queues: tuple[list[Node], list[Node]] = ([], [])
    for at in range(length):
        need = f"c{(at - 1) % 2}>={at // 2 + at % 2}" if at else f"c1>={0}"
        node = task(
            f"t{at}",
            waits=need,
            signals=f"c{at % 2}",
            reads=[read("a", v=at - 1)] if at else [],
            writes=[write("a", v=at)],
        )
        queues[at % 2].append(node)
    return AccessModel(
        buffers=(state("a", versions=length),), queues=tuple(map(tuple, queues)), max_context=64, steps_max=64, drift=1
    )


def test_a_long_chain() -> None:
    verdict = validate_model(ring(4000))
    assert verdict.proved, [str(finding) for finding in verdict.findings]
    assert verdict.seconds < SECONDS_MAX
