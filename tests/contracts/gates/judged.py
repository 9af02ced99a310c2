"""Kernels as text, and what the real judge finds of them."""

from __future__ import annotations

import textwrap
from pathlib import Path

from amk.contracts.sources import kernelbench_pair
from amk.contracts.verdicts import Finding, Judgement
from amk.contracts.verify import Options, judge_kernel

CONTROLS = Path(__file__).parent.parent / "controls"

MODULE = """
import threading, time
import torch
from torch import Tensor, nn

{top}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
{state}

    def forward(self, {names}):
{reference}

class ModelNew(Model):
    def forward(self, {names}):
{candidate}

def get_inputs():
    return {inputs}

def get_init_inputs():
    return []
"""


def module(
    reference: str,
    candidate: str,
    *,
    inputs: str = "[torch.randn(6, 40)]",
    names: str = "x",
    state: str = "pass",
    top: str = "",
) -> str:
    """A module in KernelBench's form: two bodies of ``forward``, and the end of ``__init__``."""

    def indented(code: str) -> str:
        return textwrap.indent(textwrap.dedent(code).strip("\n"), " " * 8)

    return MODULE.format(
        top=textwrap.dedent(top).strip("\n"),
        reference=indented(reference),
        candidate=indented(candidate),
        state=indented(state),
        inputs=inputs,
        names=names,
    )


def judged(text: str, *gates: str, dtype: str = "as made") -> Judgement:
    pair = kernelbench_pair("kernel", reference=text, candidate=text)
    judgement = judge_kernel(pair, Options(gates=gates, dtype=dtype))
    assert judgement.findings, judgement.why
    return judgement


def found(text: str, gate: str, *, dtype: str = "as made") -> Finding:
    """What one gate finds of a kernel."""
    finding = judged(text, gate, dtype=dtype).finding(gate)
    assert finding is not None
    return finding


def control(name: str) -> str:
    return (CONTROLS / f"{name}.py").read_text(encoding="utf-8")


def assert_violating(gate: str) -> Finding:
    """The gate's violating control passes the standard test and violates the gate; returns what is found of it."""
    judgement = judged(control(f"{gate.lower()}_violating"), "G00", gate)
    standard, finding = judgement.finding("G00"), judgement.finding(gate)
    assert standard is not None
    assert standard.verdict == "pass", standard.why
    assert finding is not None
    assert finding.verdict == "violation", finding.why
    assert finding.failing is not None
    return finding


def assert_conforming(gate: str) -> None:
    """The gate's conforming control passes every gate that applies to it, and its own for certain."""
    judgement = judged(control(f"{gate.lower()}_conforming"))
    wrong = [f"{one.gate}: {one.why}" for one in judgement.findings if one.verdict not in {"pass", "not applicable"}]
    assert not wrong
    assert judgement.status == "conforms"
    own = judgement.finding(gate)
    assert own is not None
    assert own.verdict == "pass", own.why
