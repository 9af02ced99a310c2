"""Judges that do as the kernel's text says, so that an audit can be tested without one gate being run.

The candidate's first line is the order (``conform``, ``break``, ``die`` ...) and, if it has a second word, the file in
which the call is noted.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import safetensors.torch
import torch

from amk.contracts.sources import KernelPair, Text, kernelbench_pair
from amk.contracts.verdicts import Failing, Finding, Judgement, status_of
from amk.contracts.verify import Options

JUDGE = "tests.contracts.fake_judges:judge"

REFERENCE = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.rand(4)]
def get_init_inputs():
    return []
"""


def candidate(order: str, calls: Path | None = None) -> str:
    return f"# {order} {calls or ''}\nclass ModelNew: ...\n"


def pair(name: str, order: str, calls: Path | None = None) -> KernelPair:
    return kernelbench_pair(name, reference=REFERENCE, candidate=candidate(order, calls))


def judge(kernel: KernelPair, options: Options) -> Judgement:
    """Do what the kernel says."""
    assert isinstance(kernel.candidate, Text)
    order, *calls = kernel.candidate.code.splitlines()[0].removeprefix("# ").split()
    for path in calls:
        with Path(path).open("a") as stream:
            stream.write(f"{kernel.name}\n")
    match order:
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            os._exit(7)
        case "hang":
            time.sleep(600)
        case "raise":
            raise RuntimeError("a defect")
        case "pause":
            time.sleep(0.2)
    return judgement(kernel.name, order, seconds=time.monotonic())


def judgement(name: str, order: str = "conform", *, seconds: float = 1.0) -> Judgement:
    """What a kernel of this order is found to be."""
    found = (standard(), *ORDERS.get(order, ORDERS["conform"]))
    return Judgement(
        kernel=name,
        status=status_of(found),
        why="",
        findings=found,
        device="cpu",
        dtype="float32",
        seed=0,
        seconds=seconds,
    )


def standard(passed: int = 5) -> Finding:
    figures = {"passed at 0.01": 5.0, "passed at 0.0001": float(passed), "seeds": 5.0}
    return Finding(gate="G00", verdict="pass", why="within 0.01", cases=5, seed=0, figures=figures)


def ratio(kappa: float, verdict: str = "pass") -> Finding:
    return Finding(gate="G07", verdict=verdict, why="kappa", cases=5, seed=0, figures={"nominal": 1.0, "kappa": kappa})


def failing(case: str = "NaN at the last element of input 0") -> Failing:
    data = {"0": torch.tensor([1.0, float("nan")]), "1": torch.arange(6.0).reshape(2, 3)}
    words = ("float32[2]", "float32[2, 3] strides [1, 2] offset 1", "3")
    return Failing(case=case, inputs=words, data=safetensors.torch.save(data))


def swallowed(case: str = "NaN at the last element of input 0") -> Finding:
    why = f"{case}: a class differs: output 0 at [1] is 0.0, the reference's nan (1 of 2 elements)"
    return Finding(gate="G01", verdict="violation", why=why, cases=3, seed=0, failing=failing(case))


REFUSED = Finding(
    gate="G04",
    verdict="reject",
    why="size 1: it refuses this by ValueError: too small",
    cases=1,
    seed=0,
    failing=Failing(case="size 1", inputs=("float32[1]",)),
)

ORDERS: dict[str, tuple[Finding, ...]] = {
    "conform": (ratio(1.5),),
    "break": (swallowed(), ratio(3.0)),
    "refuse": (REFUSED, ratio(2.0)),
    "infinite": (ratio(float("inf"), "violation"),),
}
