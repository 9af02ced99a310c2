"""The host's side of a launch, on a driver that is played: its memory is this process's, its kernel a function."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import amk
from amk.codegen import abi
from amk.interpreter.errors import BadLaunchError
from amk.runtime import driver, launch
from amk.runtime.device import Device, Driver
from amk.runtime.errors import GridTooLargeError, OldDriverError, WatchdogError, WrongDeviceError
from amk.runtime.kernel import build_kernel
from amk.runtime.launch import CudaBackend
from tests.checkpoints import random_llama, save_llama

H200 = Device(ordinal=0, name="H200", arch="sm_90", workers=132, memory_bytes=1 << 37)


class Played:
    """A driver. ``kernel(params)`` runs when the host waits for a launch, and sees the parameters by name."""

    def __init__(self) -> None:
        self.memory: dict[int, Any] = {}
        self.pending: dict[str, Any] | None = None
        self.kernel: Callable[[dict[str, Any]], None] = lambda params: None
        self.launched: list[dict[str, Any]] = []
        self.blocks_per_sm = 1
        self.opened: list[CudaBackend] = []

    def call(self, name: str, *args: Any) -> Any:
        return getattr(self, name, lambda *_: 1)(*args)

    def cuMemAlloc(self, size: int) -> int:  # noqa: N802 - the driver's names
        data = ctypes.create_string_buffer(size + 256)
        address = -(-ctypes.addressof(data) // 256) * 256
        self.memory[address] = data
        return address

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

    def cuMemcpyDtoH(self, to: int, source: int, size: int) -> None:  # noqa: N802
        ctypes.memmove(to, source, size)

    def cuDeviceGetAttribute(self, which: Any, device: Any) -> int:  # noqa: N802
        return 132 if "MULTIPROCESSOR_COUNT" in str(which) else 1_980_000

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, *args: Any) -> int:  # noqa: N802
        return self.blocks_per_sm

    def cuLaunchCooperativeKernel(self, function: Any, *args: Any) -> None:  # noqa: N802
        pointer = ctypes.c_uint64.from_address(args[-1]).value
        params = abi.PARAMS.unpack(ctypes.string_at(pointer, abi.PARAMS.size))
        self.launched.append(params)
        self.pending = params

    def cuStreamSynchronize(self, stream: Any) -> None:  # noqa: N802
        if stream != 0 and self.pending is not None:
            params, self.pending = self.pending, None
            self.kernel(params)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    machine = Played()
    for module in (driver, launch):
        monkeypatch.setattr(module, "call", machine.call)
    monkeypatch.setattr(launch, "probe", lambda: Driver(version=(13, 0), devices=(H200,)))
    monkeypatch.setattr(CudaBackend, "_is_over", lambda self: machine.cuStreamSynchronize(1) or True)
    yield machine
    for backend in machine.opened:
        backend.close()


@pytest.fixture
def model(tmp_path: Path, amk_home: Path) -> amk.CompiledModel:
    return amk.compile(save_llama(tmp_path), arch="sm_90", max_context=32, progress=False)


def open_backend(played: Played, model: amk.CompiledModel, *, device: Device = H200) -> CudaBackend:
    kernel = build_kernel(model._validated)
    load, rope = model._weights()
    backend = CudaBackend(
        model._validated, kernel.cubin, kernel.config, load=load, rope=rope, device=device, watchdog_s=1.0
    )
    played.opened.append(backend)
    return backend


def words(address: int, count: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_uint32 * count).from_address(address))


def counting(backend: CudaBackend, *, stop_after: int = 10**9) -> Callable[[dict[str, Any]], None]:
    """A kernel that chooses position as token and ends early after ``stop_after`` steps or when cancelled."""

    def kernel(params: dict[str, Any]) -> None:
        status = words(params["status"], 2)
        steps = 1 if status[1] else min(params["steps"], stop_after)
        for step in range(1, steps + 1):
            position = params["pos"] + step * params["tokens"]
            backend.placed.host["token"].words[position] = position
        status[0] = steps

    return kernel


def test_inputs_reach_the_device(played: Played, model: amk.CompiledModel) -> None:
    backend = open_backend(played, model)
    backend.begin([5, 6, 7], [2])
    backend.enter([5, 130])
    address = backend.placed.address
    assert words(address["prompt"], 3).tolist() == [5, 6, 7]
    assert words(address["prompt_length"], 1).tolist() == [3]
    assert words(address["eos"], 16).astype(np.int32).tolist() == [2] + [-1] * 15
    table = random_llama().get_input_embeddings().weight.float()
    hidden = words(address["hidden"], 2 * 64).view(np.float32).reshape(2, 64)
    assert torch.equal(torch.from_numpy(hidden.copy()), table[[5, 130]].detach())


def test_a_launch_is_awaited_booked_and_counted(played: Played, model: amk.CompiledModel) -> None:
    backend = open_backend(played, model)
    played.kernel = counting(backend)
    assert list(backend.run(pos=0, tokens=8, steps=2)) == [2]
    assert list(backend.run(pos=16, tokens=1, steps=5)) == [5]
    assert [backend.token(position) for position in (16, 17, 21)] == [16, 17, 21]
    assert [params["steps_done"] for params in played.launched] == [0, 2]
    assert backend.launches == 2
    played.kernel = counting(backend, stop_after=3)
    assert list(backend.run(pos=21, tokens=1, steps=5)) == [3]
    played.kernel = counting(backend, stop_after=0)
    assert list(backend.run(pos=24, tokens=1, steps=5)) == []
    list(backend.run(pos=24, tokens=1, steps=1))
    assert played.launched[-1]["steps_done"] == 10


@pytest.mark.parametrize(
    ("pos", "tokens", "steps"), [(0, 9, 1), (0, 1, 33), (32, 1, 1), (30, 1, 3), (0, 1, 0), (-1, 1, 1)]
)
def test_what_was_not_proved_is_not_launched(
    played: Played, model: amk.CompiledModel, pos: int, tokens: int, steps: int
) -> None:
    backend = open_backend(played, model)
    with pytest.raises(BadLaunchError):
        list(backend.run(pos=pos, tokens=tokens, steps=steps))
    assert played.launched == []


def test_an_interrupt_while_waiting_is_booked_later(played: Played, model: amk.CompiledModel) -> None:
    backend = open_backend(played, model)

    def interrupted(params: dict[str, Any]) -> None:
        played.pending = params
        played.kernel = counting(backend)
        raise KeyboardInterrupt

    played.kernel = interrupted
    with pytest.raises(KeyboardInterrupt):
        list(backend.run(pos=0, tokens=1, steps=4))
    backend.begin([1], [])
    list(backend.run(pos=0, tokens=1, steps=1))
    assert [params["steps_done"] for params in played.launched] == [0, 1]


def test_of_all_waits_the_one_the_others_stand_behind_is_named(played: Played, model: amk.CompiledModel) -> None:
    backend = open_backend(played, model)
    counters = [counter.id for counter in model.schedule.counters]
    task = next(i for i, name in enumerate(backend._names) if name.startswith("L1.o#"))

    def stuck(params: dict[str, Any]) -> None:
        reports = words(params["reports"], 132 * 2 * 6).reshape(132, 2, 6)
        reports[3, 0] = (1, 0, 2, counters.index("head"), 5, 132)
        reports[9, 0] = (1, task, 2, counters.index("L1.attention"), 7, 8)
        reports[9, 1] = (1, 0, 3, counters.index("sample"), 0, 1)
        words(backend._counters.address, 1)[0] = 99

    played.kernel = stuck
    with pytest.raises(
        WatchdogError, match=r"L1\.o#\d+ \(worker 9, step 2\) waits for L1\.attention .* 8; it is at 7 \(2 o"
    ):
        list(backend.run(pos=0, tokens=1, steps=4))
    assert words(backend._counters.address, 1)[0] == 0
    played.kernel = counting(backend)
    assert list(backend.run(pos=0, tokens=1, steps=1)) == [1]
    assert played.launched[-1]["steps_done"] == 0


def test_everything_is_given_back(played: Played, model: amk.CompiledModel) -> None:
    backend = open_backend(played, model)
    assert len(played.memory) == 8
    backend.close()
    backend.close()
    assert played.memory == {}


def test_a_device_that_does_not_fit_is_refused_and_nothing_is_kept(
    played: Played, model: amk.CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WrongDeviceError, match="compiled for sm_90"):
        open_backend(played, model, device=Device(ordinal=0, name="A100", arch="sm_80", workers=108, memory_bytes=1))
    played.blocks_per_sm = 0
    with pytest.raises(GridTooLargeError, match="132 blocks running at once, and H200 holds 0"):
        open_backend(played, model)
    monkeypatch.setattr(launch, "probe", lambda: Driver(version=(12, 8), devices=(H200,)))
    with pytest.raises(OldDriverError, match=r"CUDA 12\.8"):
        open_backend(played, model)
    assert played.memory == {}
