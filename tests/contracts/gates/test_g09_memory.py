"""G09: memory that is not the kernel's own, and memory that nobody has written."""

from __future__ import annotations

import pytest
import torch

from amk.contracts.gates.memory import GUARD, POISONS, guarded
from amk.contracts.trial import tensors_of
from tests.contracts.gates.judged import assert_conforming, assert_violating, found, module


def test_violating_control() -> None:
    assert "memory that nobody has written" in assert_violating("G09").why


def test_conforming_control() -> None:
    assert_conforming("G09")


@pytest.mark.parametrize(
    ("reference", "candidate", "said"),
    [
        # The last elements of a size that is no multiple of eight are never written.
        (
            "return x * 2",
            "y = torch.empty_like(x)\nn = x.numel() // 8 * 8\ny.view(-1)[:n] = x.reshape(-1)[:n] * 2\nreturn y",
            "nobody has written",
        ),
        # A maximum, and a minimum, over what was in memory too: neither shows a NaN.
        ("return x.amax(0)", "y = torch.empty_like(x[0])\nreturn torch.fmax(y, x.amax(0))", "0x5A"),
        ("return x.amin(0)", "y = torch.empty_like(x[0])\nreturn torch.fmin(y, x.amin(0))", "0xDA"),
        # Branches on what was in memory.
        ("return x * 2", "return torch.where(torch.empty_like(x) > 0, x * 2, x * 3)", "where fresh memory holds 0xFF"),
        # Reads one element behind the input, and multiplies it by zero.
        (
            "return x * 2",
            """
            size = x.untyped_storage().nbytes() // x.element_size()
            behind = min(x.storage_offset() + x.numel(), size - 1)
            return x * 2 + 0 * x.as_strided((1,), (1,), behind)
            """,
            "depend on what lies within",
        ),
        # Writes one element before the input.
        (
            "return x * 2",
            """
            if x.storage_offset():
                x.as_strided((1,), (1,), x.storage_offset() - 1).fill_(7)
            return x * 2
            """,
            "writes outside input 0",
        ),
    ],
    ids=["tail", "maximum", "minimum", "branch", "reads behind", "writes before"],
)
def test_it_is_told_what_it_does(reference: str, candidate: str, said: str) -> None:
    finding = found(module(reference, candidate), "G09")
    assert finding.verdict == "violation", finding.why
    assert said in finding.why


def test_an_input_that_is_written_to_is_another_gates() -> None:
    text = module("return x * 2", "return x.mul_(2)")
    assert found(text, "G09").verdict == "pass"
    assert found(text, "G08").verdict == "violation"


def test_a_kernel_whose_bits_vary_is_judged_by_the_poison_alone() -> None:
    random = "noise = 1 + 1e-7 * (time.perf_counter_ns() % 3)\n"
    assert found(module("return x * 2", f"{random}return x * 2 * noise"), "G09").verdict == "pass"
    tail = f"{random}y = torch.empty_like(x)\ny[:-1] = x[:-1] * 2 * noise\nreturn y"
    assert found(module("return x * 2", tail), "G09").verdict == "violation"


def test_a_reference_that_depends_on_fresh_memory_settles_nothing() -> None:
    body = "return torch.where(torch.empty_like(x) > 1e10, x * 3, x * 2)"
    assert found(module(body, body), "G09").verdict != "violation"
    assert found(module("return x * 2", body), "G09").verdict == "violation"


@pytest.mark.parametrize("loud", [False, True])
def test_guards_surround_every_tensor_and_leave_its_values(loud: bool) -> None:
    inputs = (torch.randn(3, 4).t(), [torch.arange(5), torch.tensor([True, False])], torch.zeros(0), 3)
    fenced = guarded(inputs, loud=loud)
    assert fenced[3] == 3
    for mine, theirs in zip(tensors_of(fenced), tensors_of(inputs), strict=True):
        assert torch.equal(mine, theirs)
        assert mine.is_contiguous()
        assert mine.storage_offset() == GUARD
        whole = mine.as_strided((mine.numel() + 2 * GUARD,), (1,), 0)
        around = torch.cat([whole[:GUARD], whole[-GUARD:]])
        assert bool((around != 0).all()) is loud


def test_poisons_are_told_apart_by_sums_maxima_and_minima() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        raw = [torch.full((8,), poison, dtype=torch.uint8).view(dtype)[0].item() for poison in POISONS]
        assert raw[0] != raw[0]
        assert raw[1] > 100
        assert raw[2] < -100
