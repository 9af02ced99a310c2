"""Every task of the kernel writes what the reference machine writes."""

from __future__ import annotations

from pathlib import Path

import pytest

import amk
from tests.checkpoints import save_llama
from tests.gpu.diff import differences
from tests.pipeline.test_compile import PROMPT

pytestmark = pytest.mark.gpu

MODELS = {
    "gqa 9/3": {"hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3},
    "odd sizes": {"hidden_size": 76, "intermediate_size": 101, "num_key_value_heads": 1, "head_dim": 10},
}


@pytest.mark.parametrize("kv_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("fields", MODELS.values(), ids=MODELS)
def test_no_task_differs(fields: dict[str, int], kv_dtype: str, tmp_path: Path, amk_home: Path) -> None:
    model = amk.compile(save_llama(tmp_path, seed=3, **fields), kv_dtype=kv_dtype, progress=False)
    assert [str(found) for found in differences(model, PROMPT, tokens=4)] == []


@pytest.mark.parametrize("fields", MODELS.values(), ids=MODELS)
def test_no_task_of_eight_bit_weights_differs(fields: dict[str, int], tmp_path: Path, amk_home: Path) -> None:
    model = amk.compile(save_llama(tmp_path, seed=3, **fields), dtype="w8a16", progress=False)
    assert [str(found) for found in differences(model, PROMPT, tokens=4)] == []


def test_a_wrong_weight_is_named(tmp_path: Path, amk_home: Path) -> None:
    model = amk.compile(save_llama(tmp_path, seed=3), progress=False)
    session = model.machine_session()
    session.backend.memory["model.layers.1.mlp.down_proj.weight"][0] *= 1.5
    model.machine_session = lambda: session
    found = next(differences(model, PROMPT, tokens=1))
    assert found.task == "L1.down#0"
    assert found.region.startswith("hidden[0:tokens, 0:")
