"""Kernels that misbehave, as text, and what comes of asking them."""

from __future__ import annotations

import textwrap

import torch

from amk.contracts.outcomes import Answer, Ask, Outcome
from amk.contracts.sources import Text
from amk.contracts.subject import Limits, Process

HEADER = """\
import builtins, ctypes, gc, os, pathlib, shutil, signal, socket, subprocess, sys, threading, time
import torch

"""
X = torch.arange(6.0).reshape(2, 3)
LIMITS = Limits(timeout_s=20.0, first_timeout_s=20.0, load_timeout_s=20.0, memory_bytes=1 << 30)
SHORT = Limits(timeout_s=0.5, first_timeout_s=0.5, load_timeout_s=0.5, memory_bytes=1 << 30)


def subject(body: str, limits: Limits = LIMITS) -> Process:
    """``def kernel(x)`` with ``body``; or a whole module, if that defines ``kernel`` itself."""
    code = textwrap.dedent(body)
    if "def kernel" not in code:
        code = f"def kernel(x):\n{textwrap.indent(code, '    ')}"
    return Process(Text(code=HEADER + code, attribute="kernel"), limits=limits)


def asked(body: str, limits: Limits = LIMITS, *, times: int = 1) -> Outcome:
    with subject(body, limits) as process:
        return [process.ask(Ask(inputs=(X,))) for _ in range(times)][-1]


def answered(body: str, *, times: int = 1) -> Answer:
    outcome = asked(body, times=times)
    assert isinstance(outcome, Answer), outcome
    return outcome
