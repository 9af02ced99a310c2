"""Schedules to generate kernels for: the head shapes of real models and an awkward one, small in all else."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from amk.ir.schedule import Schedule
from amk.target import resolve_target
from tests.builders import llama_graph, lower

ARCHS: Final = ("sm_80", "sm_90", "sm_120")

SHAPES: Final[dict[str, dict[str, Any]]] = {
    "smollm2": {"hidden": 576, "heads": 9, "kv_heads": 3, "head_dim": 64, "intermediate": 1536},
    "llama-3b": {"hidden": 3072, "heads": 24, "kv_heads": 8, "head_dim": 128, "intermediate": 8192},
    "llama-8b": {"hidden": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128, "intermediate": 14336},
    "odd": {"hidden": 72, "heads": 14, "kv_heads": 2, "head_dim": 10, "intermediate": 88},
}


@cache
def scheduled(shape: str, arch: str, *, bf16_kv: bool = False, tokens: int = 8, group: int | None = None) -> Schedule:
    """One layer of ``shape`` for the default chip of ``arch``."""
    graph = llama_graph(layers=1, vocab=512, **SHAPES[shape])
    target = resolve_target(arch=arch, target=None)
    return lower(graph, target, max_context=1024, bf16_kv=bf16_kv, tokens_per_pass=tokens, group=group)
