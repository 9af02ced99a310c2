"""The controls whose fault is a device's, judged on one: CUDA by load_inline, and Triton."""

from __future__ import annotations

from pathlib import Path

import pytest

from amk.contracts.sources import kernelbench_pair
from amk.contracts.verdicts import Judgement
from amk.contracts.verify import Options, judge_kernel

pytestmark = pytest.mark.gpu

CONTROLS = Path(__file__).parents[1] / "contracts" / "controls"
BUDGET_S = 900.0
"""Of a kernel: many compilers may run beside one another, and the last gate has to be reached."""

MODULES = sorted(path for kind in ("cuda", "triton") for path in CONTROLS.glob(f"g[01][0-9]*_{kind}.py"))


def judged(path: Path) -> Judgement:
    text = path.read_text(encoding="utf-8")
    pair = kernelbench_pair(path.stem, reference=text, candidate=text)
    judgement = judge_kernel(pair, Options(device="cuda", budget_s=BUDGET_S))
    assert judgement.findings, judgement.why
    return judgement


def of(kind: str) -> list[Path]:
    return [path for path in MODULES if f"_{kind}_" in path.name]


@pytest.mark.parametrize("path", of("violating"), ids=lambda path: path.stem)
def test_a_violating_control_passes_the_standard_test_alone(path: Path) -> None:
    judgement = judged(path)
    standard, own = judgement.finding("G00"), judgement.finding(path.name[:3].upper())
    assert standard is not None
    assert standard.verdict == "pass", standard.why
    assert own is not None
    assert own.verdict == "violation", own.why
    assert own.failing is not None


@pytest.mark.parametrize("path", of("conforming"), ids=lambda path: path.stem)
def test_a_conforming_control_passes_every_gate(path: Path) -> None:
    judgement = judged(path)
    wrong = [f"{one.gate}: {one.why}" for one in judgement.findings if one.verdict not in {"pass", "not applicable"}]
    assert not wrong
    own = judgement.finding(path.name[:3].upper())
    assert own is not None
    assert own.verdict == "pass", own.why


def test_each_fault_of_a_device_has_both_controls() -> None:
    assert {path.stem.replace("_violating_", "_") for path in of("violating")} == {
        path.stem.replace("_conforming_", "_") for path in of("conforming")
    }
