"""Memory: what a checkpoint becomes, and what nobody has written yet."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from amk.errors import NotYetError
from amk.interpreter.memory import allocate
from tests.builders import EMBEDDING, llama_graph, lower
from tests.interpreter.driving import random_weights, rope_loader

GRAPH = llama_graph(hidden=64, heads=4, kv_heads=2, head_dim=16, intermediate=96, vocab=97, tied=False)
SCHEDULE = lower(GRAPH, workers=3, bf16_kv=True)
WEIGHTS = {name: torch.from_numpy(array) for name, array in random_weights(GRAPH, seed=0, scale=0.1).items()}
MEMORY = allocate(SCHEDULE, WEIGHTS.__getitem__, rope_loader(16))


def test_every_buffer_has_its_logical_shape() -> None:
    assert set(MEMORY) == set(SCHEDULE.buffer)
    for name, tensor in MEMORY.items():
        assert tuple(tensor.shape) == SCHEDULE.buffer[name].shape


def test_matrices_are_rounded_to_bf16_and_gains_are_not() -> None:
    table = MEMORY[EMBEDDING]
    assert table.dtype == torch.float32
    assert torch.equal(table, WEIGHTS[EMBEDDING].to(torch.bfloat16).to(torch.float32))
    assert not torch.equal(table, WEIGHTS[EMBEDDING])
    assert torch.equal(MEMORY["model.norm.weight"], WEIGHTS["model.norm.weight"])


def test_a_bf16_checkpoint_gives_the_same_matrices() -> None:
    narrow = allocate(SCHEDULE, lambda name: WEIGHTS[name].to(torch.bfloat16), rope_loader(16))
    assert torch.equal(narrow["L0.qkv.weight"], MEMORY["L0.qkv.weight"])


def test_projections_are_stacked_and_the_mlp_is_interleaved() -> None:
    prefix = "model.layers.1."
    parts = [WEIGHTS[f"{prefix}self_attn.{part}_proj.weight"] for part in "qkv"]
    assert torch.equal(MEMORY["L1.qkv.weight"], torch.cat(parts).to(torch.bfloat16).to(torch.float32))
    both = MEMORY["L1.gate_up.weight"]
    for offset, part in enumerate(("gate", "up")):
        assert torch.equal(
            both[offset::2], WEIGHTS[f"{prefix}mlp.{part}_proj.weight"].to(torch.bfloat16).to(torch.float32)
        )


def test_the_rope_table_is_the_loaders() -> None:
    np.testing.assert_array_equal(MEMORY["rope"].numpy(), rope_loader(16)(0, 64))


def test_what_nobody_has_written_does_not_look_like_an_answer() -> None:
    for buffer in SCHEDULE.buffers:
        tensor = MEMORY[buffer.id]
        if buffer.kind in {"weight", "const"}:
            assert tensor.isfinite().all()
        elif buffer.dtype == "i32":
            assert (tensor == -1).all()
        else:
            assert tensor.isnan().all()
    assert MEMORY["L0.k_cache"].dtype == torch.bfloat16


def test_a_dtype_that_is_not_run_yet_is_named() -> None:
    buffers = [replace(buffer, dtype="i8") if buffer.id == "qkv" else buffer for buffer in SCHEDULE.buffers]
    with pytest.raises(NotYetError, match="i8 of the buffer 'qkv'"):
        allocate(replace(SCHEDULE, buffers=tuple(buffers)), lambda name: WEIGHTS[name], rope_loader(16))
