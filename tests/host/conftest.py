"""One home for all tests of the host build, so that each program is built once; and tiny models compiled for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import amk
from amk.pipeline import CompiledModel
from amk.target import TARGETS
from tests.checkpoints import save_llama

TWINS: dict[str, dict[str, Any]] = {
    "gqa 9/3, hidden 576": {"hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3},
    "hidden 64, 5 layers": {"hidden_size": 64, "num_hidden_layers": 5},
    "odd sizes": {"hidden_size": 76, "intermediate_size": 101, "num_key_value_heads": 1, "head_dim": 10},
}
"""Odd sizes: rows and columns that are no multiple of a tile, cached rows with padding."""

PROMPT = [7, 3, 99, 11, 4, 87, 20, 51, 33, 2, 64]

SMALL = {"workers": 3, "consumer_warps": 2}

Compile = Callable[..., CompiledModel]


@pytest.fixture(scope="session")
def host_home(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    base = tmp_path_factory.getbasetemp()
    return (base if worker_id == "master" else base.parent) / "host-home"


@pytest.fixture(autouse=True)
def _home(host_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMK_HOME", str(host_home))


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compile:
    """``compiled("odd sizes", kv_dtype=...)``: a twin, compiled for arch host; ``small`` for few workers and warps."""

    def make(
        twin: str = "hidden 64, 5 layers",
        *,
        layers: int | None = None,
        context: int = 256,
        small: bool = False,
        **options: Any,
    ) -> CompiledModel:
        if small:
            monkeypatch.setitem(TARGETS, "host", replace(TARGETS["host"], **SMALL))
        fields = TWINS[twin] | ({"num_hidden_layers": layers} if layers else {})
        fields |= {"max_position_embeddings": context}
        folder = save_llama(tmp_path / "checkpoint", seed=3, **fields)
        return amk.compile(folder, arch="host", progress=False, **options)

    return make
