"""That the generators make what they say: rewrites that no probe tells from their reference, faults that one does."""

from __future__ import annotations

import pytest
import torch

from tests.contracts.mutants.broken import broken
from tests.contracts.mutants.compose import HEADS, Link, module
from tests.contracts.mutants.correct import correct
from tests.contracts.mutants.elementwise import ELEMENTWISE
from tests.contracts.mutants.heads import ROWS
from tests.contracts.mutants.probes import distinguished, runs
from tests.contracts.mutants.rowwise import REDUCTIONS, ROWWISE
from tests.contracts.mutants.stages import Stage
from tests.contracts.mutants.whole import WHOLE

SIZES = {"N": 6, "M": 3, "D": 20, "E": 12}
IMAGE = {"N": 6, "M": 3, "D": 4, "E": 6}
STAGES = tuple(stage for stage in (*ELEMENTWISE, *ROWWISE, *REDUCTIONS, *HEADS) if stage.code)


def chained(stage: Stage, code: str, wrapper: str = "") -> str:
    """A module of one stage, behind plain rows if it takes none of its own."""
    sizes = IMAGE if stage.works_on == "image" else SIZES
    links = [Link(stage, 0, sizes)] if stage.takes else [Link(ROWS[0], 0, sizes), Link(stage, 1, sizes)]
    codes = [code] if stage.takes else ["", code]
    return module(links, codes, title=stage.name, dtype="float32", wrapper=wrapper)


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_no_probe_tells_a_rewrite_from_the_reference(stage: Stage) -> None:
    for code in stage.rewrites:
        text = chained(stage, code)
        assert runs(text), code
        assert distinguished(text) is None, code


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage.faults], ids=lambda stage: stage.name)
def test_a_probe_tells_each_fault_from_the_reference(stage: Stage) -> None:
    missed = [name for name, code in stage.faults.items() if distinguished(chained(stage, code)) is None]
    assert not missed


@pytest.mark.parametrize("mutation", [name for name in WHOLE if name != "wrong dtype"])
def test_a_probe_tells_each_fault_around_a_kernel(mutation: str) -> None:
    stage = next(stage for stage in ROWWISE if stage.name == "linear")
    assert distinguished(chained(stage, stage.code, WHOLE[mutation])) is not None


@pytest.mark.parametrize("generate", [correct, broken])
def test_a_seed_makes_the_same_kernels_again(generate) -> None:
    state = torch.get_rng_state()
    first, second = ([kernel.text for kernel in generate(5, seed=3)] for _ in range(2))
    assert first == second
    assert len(set(first)) == 5
    assert first != [kernel.text for kernel in generate(5, seed=4)]
    assert torch.equal(torch.get_rng_state(), state) or generate is correct
