"""Calibration: conforming kernels, sized, judged, and what their kappas amount to."""

from __future__ import annotations

import msgspec
import pytest

from amk.contracts import calibrate as module
from amk.contracts.calibrate import Calibration, Row, calibrate, conforming, scaled_pair, summarise
from amk.contracts.gates.kappa import KAPPA
from amk.contracts.sources import Text
from amk.contracts.verify import Options, judge_kernel


def row(kernel: str, kappa: float | None, *, gate: str = "G07", dtype: str = "float32") -> Row:
    return Row(kernel=kernel, dtype=dtype, scale=1, gate=gate, kappa=kappa)


def test_the_least_kappa_without_an_alarm_is_the_largest_that_is_needed() -> None:
    found = summarise([row("b", 2.5), row("a", 0.5), row("c", None), row("a", 3.0, gate="G12")], device="cpu")
    assert found.silent == {"G07": 2.5, "G12": 3.0}
    assert [one.kernel for one in found.rows] == ["a", "a", "b", "c"]
    alarms = {(one.gate, one.kappa): (one.alarms, one.kernels) for one in found.alarms}
    assert alarms["G07", 2.0] == (1, 2)
    assert alarms["G07", 3.0] == (0, 2)
    assert alarms["G12", 2.0] == (1, 1)
    assert found.silent_of("G07", "float32") == 2.5
    assert found.silent_of("G07", "bfloat16") is None


def test_a_calibration_is_a_file() -> None:
    found = summarise([row("a", 0.5), row("b", None)], device="cpu")
    assert msgspec.json.decode(msgspec.json.encode(found), type=Calibration) == found


def test_sizes_are_the_kernels_own_times_a_factor() -> None:
    name, text = next(conforming())
    pair = scaled_pair(name, text, 3)
    assert isinstance(pair.reference, Text)
    space: dict[str, object] = {}
    exec(pair.reference.code, space)
    assert space["SCALE"] == 3


def test_one_conforming_kernel_is_measured_in_two_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = dict(conforming())
    monkeypatch.setattr(module, "conforming", lambda: iter([("gelu", texts["gelu"])]))
    said: list[str] = []
    found = calibrate("cpu", 1, said.append, dtypes=("float32", "bfloat16"), scales=(1,))
    assert [(one.dtype, one.gate) for one in found.rows] == [
        ("bfloat16", "G07"),
        ("bfloat16", "G12"),
        ("float32", "G07"),
        ("float32", "G12"),
    ]
    assert all(0 < one.kappa <= KAPPA and len(one.regimes) >= 2 for one in found.rows if one.kappa is not None)
    assert found.silent.keys() == {"G07", "G12"}
    assert len(said) == 2
    assert "gelu, float32, size x1: G07 needs" in said[0]


@pytest.mark.parametrize(("name", "text"), list(conforming()), ids=[name for name, _ in conforming()])
def test_conforming_kernels_pass_the_gates_that_they_calibrate(name: str, text: str) -> None:
    judgement = judge_kernel(scaled_pair(name, text, 1), Options(gates=("G00", "G07", "G12")))
    assert [(one.gate, one.verdict) for one in judgement.findings] == [
        ("G00", "pass"),
        ("G07", "pass"),
        ("G12", "pass"),
    ]
