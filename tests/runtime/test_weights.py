"""Packing by torch is the packing of ``ir/layout.py``."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from amk.ir.buffers import Arrange, Buffer, RopeSource, Source
from amk.ir.layout import arrange, pack
from amk.runtime.weights import Placed, contents
from tests.runtime.played import PlayedChip, words


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
    np.testing.assert_array_equal(contents(rope, lambda name: torch.zeros(1), lambda number, rows: table[:rows]), table)
    empty = Buffer(id="x", kind="activation", dtype="f32", shape=(4,))
    assert contents(empty, lambda name: torch.zeros(1), lambda number, rows: table) is None


@pytest.mark.parametrize("gap", [0, 4096])
def test_what_lies_between_two_buffers_is_guarded(gap: int) -> None:
    buffers = (
        Buffer(id="x", kind="activation", dtype="f32", shape=(3,)),
        Buffer(id="token", kind="output", dtype="i32", shape=(5,)),
        Buffer(id="w", kind="weight", dtype="bf16", shape=(128,), source=Source(tensors=("t",))),
        Buffer(id="y", kind="activation", dtype="f32", shape=(64,)),
    )
    chip = PlayedChip(gap=gap)
    schedule = SimpleNamespace(buffers=buffers, buffer={buffer.id: buffer for buffer in buffers})
    placed = Placed(schedule, chip, lambda name: torch.ones(128), np.zeros, head_stride=0)
    x, w, y = (placed.address[name] for name in "xwy")
    assert x % 256 == 0
    assert (w - x, y - w) == (256 + gap, 256 + gap)
    behind = [(y + 256, gap)] if gap else []
    between = [(w + 256, gap)] if gap else []
    assert chip.guarded == [(x + 12, 244 + gap), *between, *behind]
    assert placed.host.keys() == {"token"}
    assert placed.address["token"] == placed.host["token"].address
    assert words(w, 64).tolist() == [0x3F803F80] * 64
    assert not words(y, 64).any()
