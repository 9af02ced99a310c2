"""Calls of the driver API are checked, each answered by a played one."""

from __future__ import annotations

import pytest
from cuda.bindings import driver as api

from amk.runtime.driver import call, is_idle
from amk.runtime.errors import DriverError

RESULT = api.CUresult


def test_a_value_several_values_and_none(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {
        "cuDeviceGet": (RESULT.CUDA_SUCCESS, 7),
        "cuMemGetInfo": (RESULT.CUDA_SUCCESS, 1, 2),
        "cuInit": (RESULT.CUDA_SUCCESS,),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(api, name, lambda *args, answer=answer: answer)
    assert call("cuDeviceGet", 0) == 7
    assert call("cuMemGetInfo") == (1, 2)
    assert call("cuInit", 0) == ()


def test_a_failure_names_the_call_and_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "cuMemAlloc", lambda size: (RESULT.CUDA_ERROR_OUT_OF_MEMORY, 0))
    monkeypatch.setattr(api, "cuGetErrorString", lambda status: (RESULT.CUDA_SUCCESS, b"out of memory"))
    with pytest.raises(DriverError, match=r"AMK-R602 cuMemAlloc failed: CUDA_ERROR_OUT_OF_MEMORY \(out of memory\)"):
        call("cuMemAlloc", 1 << 60)


def test_a_stream_is_idle_busy_or_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = {"cuStreamQuery": RESULT.CUDA_SUCCESS, "cuStreamSynchronize": RESULT.CUDA_SUCCESS}
    monkeypatch.setattr(api, "cuStreamQuery", lambda stream: (ended["cuStreamQuery"],))
    monkeypatch.setattr(api, "cuStreamSynchronize", lambda stream: (ended["cuStreamSynchronize"],))
    monkeypatch.setattr(api, "cuGetErrorString", lambda status: (RESULT.CUDA_SUCCESS, b"why"))
    assert is_idle(1)
    ended["cuStreamQuery"] = RESULT.CUDA_ERROR_NOT_READY
    assert not is_idle(1)
    ended |= dict.fromkeys(ended, RESULT.CUDA_ERROR_LAUNCH_FAILED)
    with pytest.raises(DriverError, match="CUDA_ERROR_LAUNCH_FAILED"):
        is_idle(1)
