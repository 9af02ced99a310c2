"""Packing by torch is the packing of ``ir/layout.py``."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from amk.ir.buffers import Arrange, Buffer, RopeSource, Source
from amk.ir.layout import arrange, pack
from amk.runtime.weights import contents


@pytest.mark.parametrize("how", ["stack", "interleave"])
@pytest.mark.parametrize("layout", ["plain", "gemv8x32"])
@pytest.mark.parametrize("shape", [(8, 32), (13, 45), (1, 1), (64, 33)])
def test_packed_as_the_layout_says(shape: tuple[int, int], layout: str, how: Arrange) -> None:
    parts = {name: torch.randn(shape).to(torch.bfloat16) for name in ("a", "b")}
    buffer = Buffer(
        id="w",
        kind="weight",
        dtype="bf16",
        shape=(2 * shape[0], shape[1]),
        layout=layout,
        source=Source(tensors=("a", "b"), arrange=how),
    )
    expected = pack(buffer, arrange([part.view(torch.int16).numpy() for part in parts.values()], how))
    np.testing.assert_array_equal(contents(buffer, parts.__getitem__, np.zeros), expected)


def test_a_wider_checkpoint_is_rounded_to_nearest_and_gains_stay_float32() -> None:
    value = torch.tensor([[1.0 + 2.0**-9 + 2.0**-12]])
    weight = Buffer(id="w", kind="weight", dtype="bf16", shape=(1, 1), source=Source(tensors=("t",)))
    gain = Buffer(id="g", kind="const", dtype="f32", shape=(1,), source=Source(tensors=("t",)))
    bits = contents(weight, lambda name: value, np.zeros)
    assert torch.from_numpy(bits).view(torch.bfloat16).item() == value.to(torch.bfloat16).item()
    assert contents(gain, lambda name: value[0], np.zeros).item() == value.item()


def test_the_rope_table_and_what_starts_empty() -> None:
    rope = Buffer(id="rope", kind="const", dtype="f32", shape=(3, 2, 4), source=RopeSource())
    table = np.arange(24, dtype=np.float32).reshape(3, 2, 4)
    np.testing.assert_array_equal(contents(rope, lambda name: torch.zeros(1), lambda rows: table[:rows]), table)
    empty = Buffer(id="x", kind="activation", dtype="f32", shape=(4,))
    assert contents(empty, lambda name: torch.zeros(1), lambda rows: table) is None
