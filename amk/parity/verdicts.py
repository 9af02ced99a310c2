"""The twin check, done once for each architecture and each version of everything that could change its outcome."""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from amk.ir.passes import Passes
from amk.settings import settings, write_atomically
from amk.sources import sources_digest
from amk.target import Target

if TYPE_CHECKING:
    from amk.frontend.checkpoint import Checkpoint

logger = logging.getLogger("amk.parity")

CONTEXT = 64
"""Positions of the twin's cache."""

_ROOMS = ("frontend", "interpreter", "ir", "parity", "runtime", "validator")


def ensure_twin(checkpoint: Checkpoint, passes: Passes, target: Target) -> None:
    """Check the twin of ``checkpoint``, or find that it has passed before.

    The cache runs at float32: the twin is about structure, and a rounded cache would blur what it compares.

    Raises
    ------
    TwinMismatchError
        The twin decodes differently from HuggingFace.
    """
    exact = replace(passes, tile=replace(passes.tile, max_context=CONTEXT, kv_dtype="f32"))
    versions = [importlib.metadata.version(package) for package in ("torch", "transformers")]
    facts = (checkpoint.config_digest(), exact, target.arch == "cpu", versions, sources_digest(*_ROOMS))
    verdict = settings().cache / "twins" / f"{hashlib.sha256(repr(facts).encode()).hexdigest()}.json"
    if verdict.is_file():
        return
    from amk.parity.twin import check_twin

    report = check_twin(checkpoint.config, exact, target, name=checkpoint.name)
    logger.info("the twin of %s decodes as HuggingFace does (r %.2g)", checkpoint.name, report.logit_range_max)
    write_atomically(verdict, report.to_json())
