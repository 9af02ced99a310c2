"""The CUDA chip on a driver that is played: its memory is this process's, its kernel a function."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import amk
from amk.codegen import abi
from amk.runtime import cuda, driver
from amk.runtime.cuda import CudaChip
from amk.runtime.device import Device, Driver
from amk.runtime.errors import DriverError, GridTooLargeError, OldDriverError, StreamCaptureError, WrongDeviceError
from amk.runtime.kernel import Kernel as Built
from amk.runtime.kernel import build_kernel
from amk.runtime.launch import KernelBackend
from tests.checkpoints import random_llama, save_llama
from tests.runtime.played import Kernel, address_of, allocated, counting, inputs

H200 = Device(ordinal=0, name="H200", arch="sm_90", workers=132, memory_bytes=1 << 37)
A100 = Device(ordinal=0, name="A100", arch="sm_80", workers=108, memory_bytes=1)


class Played:
    """A driver. ``kernel(params)`` runs when the host waits for a launch, and sees the parameters by name."""

    def __init__(self) -> None:
        self.memory: dict[int, Any] = {}
        self.pending: dict[str, Any] | None = None
        self.kernel: Kernel = lambda params: None
        self.params: list[dict[str, Any]] = []
        self.launched: list[tuple[Any, ...]] = []
        self.called: list[str] = []
        self.blocks_per_sm = 1

    def call(self, name: str, *args: Any) -> Any:
        self.called.append(name)
        return getattr(self, name, lambda *_: 1)(*args)

    def cuMemAlloc(self, size: int) -> int:  # noqa: N802 - the driver's names
        data = allocated(size)
        self.memory[address_of(data)] = data
        return address_of(data)

    def cuMemHostAlloc(self, size: int, flags: int) -> int:  # noqa: N802
        return self.cuMemAlloc(size)

    def cuMemHostGetDevicePointer(self, pointer: int, flags: int) -> int:  # noqa: N802
        return pointer

    def cuMemFree(self, address: int) -> None:  # noqa: N802
        del self.memory[address]

    cuMemFreeHost = cuMemFree  # noqa: N815

    def cuMemsetD8(self, address: int, value: int, size: int) -> None:  # noqa: N802
        ctypes.memset(address, value, size)

    def cuMemcpyHtoD(self, to: int, source: int, size: int) -> None:  # noqa: N802
        ctypes.memmove(to, source, size)

    cuMemcpyDtoH = cuMemcpyHtoD  # noqa: N815

    def cuDeviceGetAttribute(self, which: Any, device: Any) -> int:  # noqa: N802
        return 132 if "MULTIPROCESSOR_COUNT" in str(which) else 1_980_000

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, *args: Any) -> int:  # noqa: N802
        return self.blocks_per_sm

    def cuLaunchCooperativeKernel(self, function: Any, *args: Any) -> None:  # noqa: N802
        pointer = ctypes.c_uint64.from_address(args[-1]).value
        self.pending = abi.PARAMS.unpack(ctypes.string_at(pointer, abi.PARAMS.size))
        self.params.append(self.pending)
        self.launched.append(args[:-1])

    def cuStreamSynchronize(self, stream: Any) -> None:  # noqa: N802
        if stream != 0 and self.pending is not None:
            params, self.pending = self.pending, None
            self.kernel(params)

    @property
    def given_back(self) -> bool:
        """No memory is held, and as many streams, modules and contexts were given back as were taken."""
        pairs = (
            ("cuStreamCreate", "cuStreamDestroy"),
            ("cuModuleLoadData", "cuModuleUnload"),
            ("cuCtxPushCurrent", "cuCtxPopCurrent"),
            ("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease"),
        )
        return not self.memory and all(self.called.count(taken) == self.called.count(back) for taken, back in pairs)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    machine = Played()
    for module in (driver, cuda):
        monkeypatch.setattr(module, "call", machine.call)
    monkeypatch.setattr(cuda, "probe", lambda: Driver(version=(13, 0), devices=(H200,)))
    monkeypatch.setattr(cuda, "is_idle", lambda stream: machine.cuStreamSynchronize(stream) or True)
    yield machine
    gc.collect()  # of chips that a test has left, while the driver is still played


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[amk.CompiledModel]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AMK_HOME", str(tmp_path_factory.mktemp("home")))
        folder = save_llama(tmp_path_factory.mktemp("tiny"))
        yield amk.compile(folder, arch="sm_90", max_context=32, progress=False)


@pytest.fixture
def built(model: amk.CompiledModel) -> Built:
    return build_kernel(model._validated)


def open_chip(built: Built, *, device: Device = H200) -> CudaChip:
    return CudaChip(built.cubin, built.config, device=device, workers=132)


def open_backend(built: Built, model: amk.CompiledModel) -> KernelBackend:
    load, rope = model._weights()
    chip = open_chip(built)
    return KernelBackend(model._validated, built.config, chip, load=load, rope=rope, watchdog_s=1.0)


def test_inputs_reach_the_device_and_a_launch_takes_the_whole_grid(
    played: Played, built: Built, model: amk.CompiledModel
) -> None:
    backend = open_backend(built, model)
    backend.begin([5, 6, 7], [2])
    backend.enter([5, 130])
    found = inputs(backend)
    assert found["prompt"].tolist() == [5, 6, 7]
    assert found["prompt_length"].tolist() == [3]
    assert found["eos"].astype(np.int32).tolist() == [2] + [-1] * 15
    table = random_llama().get_input_embeddings().weight.float()
    words = found["hidden"].view(np.float32).reshape(2, 64, 2)
    assert torch.equal(torch.from_numpy(words[..., 0].copy()), table[[5, 130]].detach())
    played.kernel = counting(backend)
    assert list(backend.run(pos=0, tokens=8, steps=2)) == [2]
    assert backend.token(16) == 16
    config = built.config
    assert played.launched == [(132, 1, 1, config.threads, 1, 1, config.shared_bytes, 1)]
    assert backend.logits().tolist() == [0.0] * 131


def test_a_watchdogs_clocks_are_the_devices(played: Played, built: Built) -> None:
    assert open_chip(built).clock_hz == 1.98e9


def test_a_copy_is_made_of_an_array_that_is_not_contiguous(played: Played, built: Built) -> None:
    chip = open_chip(built)
    address = chip.memory(12)
    chip.upload(address, np.arange(6, dtype=np.int32)[::2])
    out = np.empty(3, dtype=np.int32)
    chip.download(address, out)
    assert out.tolist() == [0, 2, 4]


def test_everything_is_given_back(played: Played, built: Built, model: amk.CompiledModel) -> None:
    backend = open_backend(built, model)
    assert len(played.memory) == 8
    assert played.called.count("cuCtxPushCurrent") == played.called.count("cuCtxPopCurrent")
    backend.close()
    assert played.given_back
    backend.close()
    assert played.given_back
    backend = open_backend(built, model)
    del backend
    gc.collect()
    assert played.given_back


def test_what_a_failing_call_leaves_is_given_back(
    played: Played, built: Built, model: amk.CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any) -> None:
        raise DriverError(call="cuMemsetD8", status="CUDA_ERROR_UNKNOWN", why="unknown")

    monkeypatch.setattr(played, "cuMemsetD8", fail)
    with pytest.raises(DriverError, match="cuMemsetD8 failed"):
        open_backend(built, model)
    assert played.called.count("cuMemHostAlloc") == played.called.count("cuMemAlloc") == 1
    assert played.given_back


def test_a_device_that_does_not_fit_is_refused_and_nothing_is_kept(
    played: Played, built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WrongDeviceError, match="compiled for sm_90"):
        open_chip(built, device=A100)
    played.blocks_per_sm = 0
    with pytest.raises(GridTooLargeError, match="132 blocks running at once, and H200 holds 0"):
        open_chip(built)
    monkeypatch.setattr(cuda, "probe", lambda: Driver(version=(12, 8), devices=(H200,)))
    with pytest.raises(OldDriverError, match=r"CUDA 12\.8"):
        open_chip(built)
    assert played.given_back


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether PyTorch captures the current stream: ``capturing[0]``."""
    state = [False]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: state[0])
    return state


def test_nothing_is_called_while_a_stream_is_captured(
    played: Played, built: Built, model: amk.CompiledModel, capturing: list[bool]
) -> None:
    session = model._session_on(open_backend(built, model))
    played.kernel = counting(session.backend)
    session.prefill([5, 6, 7])
    called = list(played.called)
    capturing[0] = True
    for attempt in (
        lambda: open_chip(built),
        lambda: session.prefill([5]),
        lambda: session.force(5),
        lambda: next(session.decode(2)),
        session.logits,
    ):
        with pytest.raises(StreamCaptureError, match="AMK-R612") as refused:
            attempt()
        assert "outside of the capture" in refused.value.remedy
    assert played.called == called
    capturing[0] = False
    assert session.prefill([5, 6, 7]) == 3
    assert list(session.decode(2)) == [4, 5]


def test_a_launch_that_runs_when_a_capture_begins_is_booked_after_it(
    played: Played, built: Built, model: amk.CompiledModel, capturing: list[bool]
) -> None:
    backend = open_backend(built, model)
    played.kernel = counting(backend)
    run = backend.run(pos=0, tokens=1, steps=4)
    assert next(run) == 4
    capturing[0] = True
    with pytest.raises(StreamCaptureError):
        next(run)
    capturing[0] = False
    list(backend.run(pos=4, tokens=1, steps=1))
    assert played.params[-1]["steps_done"] == 4
