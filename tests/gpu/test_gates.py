"""The shipped kernel under the gates, on a device."""

from __future__ import annotations

from pathlib import Path

import pytest

import amk
from amk.contracts.megakernel import judge_model
from tests.checkpoints import save_llama
from tests.contracts.test_megakernel import FLOATING, judged

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", ["bf16", "w8a16"])
def test_a_small_model_passes_every_gate_that_applies(tmp_path: Path, dtype: str) -> None:
    folder = save_llama(tmp_path / "llama", max_position_embeddings=512)
    model = amk.compile(str(folder), max_context=300, dtype=dtype, progress=False)
    assert model.arch.startswith("sm_")
    found = judge_model(model)
    assert found.status == "conforms", str(found)
    assert {finding.gate for finding in found.findings if finding.verdict == "not applicable"} == FLOATING, str(found)
    assert all(finding.verdict == "pass" for finding in judged(found)), str(found)
