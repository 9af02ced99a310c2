"""The kernel on a device: one cooperative launch runs many steps, and the host reads tokens while it runs."""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections.abc import Generator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from amk.codegen import abi
from amk.codegen.encode import encode
from amk.interpreter.errors import BadLaunchError
from amk.ir.layout import TILE_ROWS, stored_shape
from amk.ir.tasks import Sample
from amk.runtime.device import Device, probe
from amk.runtime.driver import Context, DeviceMemory, PinnedMemory, call, download, upload
from amk.runtime.errors import GridTooLargeError, OldDriverError, WatchdogError, WrongDeviceError
from amk.runtime.weights import Placed

if TYPE_CHECKING:
    from amk.codegen.config import KernelConfig
    from amk.codegen.nvrtc import Cubin
    from amk.interpreter.memory import LoadRope, LoadTensor
    from amk.validator import ValidatedSchedule

POLL_S = 20e-6
"""Between two looks at the tokens of a running launch."""


class CudaBackend:
    """A proved schedule, its kernel and its memory on one GPU; see ``backend.Backend``.

    Parameters
    ----------
    validated, cubin, config
        The schedule, and the kernel that was built from it.
    load, rope
        As ``interpreter.memory.allocate`` takes them.
    device
        Where to run.
    watchdog_s
        Seconds after which a wait inside the kernel ends the launch.
    """

    def __init__(
        self,
        validated: ValidatedSchedule,
        cubin: Cubin,
        config: KernelConfig,
        *,
        load: LoadTensor,
        rope: LoadRope,
        device: Device,
        watchdog_s: float,
    ) -> None:
        schedule = validated.schedule
        self.schedule = schedule
        self.device = device
        self.config = config
        self.watchdog_s = watchdog_s
        self.max_context = schedule.max_context
        self.tokens_per_pass = schedule.symbol("tokens").high
        self.launches = 0
        self._sample = next(task.op for task in schedule.tasks if isinstance(task.op, Sample))
        self.eos_slots = schedule.buffer[self._sample.eos].shape[0]
        self._running = False
        self._steps_done = 0  # by launches that have ended
        self._lock = threading.RLock()
        self.context = Context(device.ordinal)
        try:
            with self.context.active(), ExitStack() as stack:
                self._take_up(cubin, load, rope, stack)
                owned = stack.pop_all()
        except BaseException:
            self.context.close()
            raise
        self._free = weakref.finalize(self, _free, self.context, owned)
        self._free.atexit = False  # the driver frees all that a process held

    def _take_up(self, cubin: Cubin, load: LoadTensor, rope: LoadRope, owned: ExitStack) -> None:
        """Everything on the device; ``owned`` frees it."""
        schedule = self.schedule
        self._function = self._kernel(cubin, owned)
        self._stream = call("cuStreamCreate", 1)  # CU_STREAM_NON_BLOCKING
        owned.callback(call, "cuStreamDestroy", self._stream)
        self.placed = Placed(schedule, load, rope, head_stride=self.config.head_stride, owned=owned)
        encoded = encode(schedule, self.placed.address, head_stride=self.config.head_stride)
        self._names = encoded.names
        begin = np.array(encoded.begin, dtype=np.uint32)
        self._tasks = DeviceMemory(len(encoded.tasks))
        owned.callback(self._tasks.close)
        upload(self._tasks.address, np.frombuffer(encoded.tasks, dtype=np.uint8))
        self._queue_begin = DeviceMemory(begin.nbytes)
        owned.callback(self._queue_begin.close)
        upload(self._queue_begin.address, begin)
        self._counters = DeviceMemory(4 * abi.COUNTER_STRIDE * len(schedule.counters))
        owned.callback(self._counters.close)
        self._abort = DeviceMemory(4)
        owned.callback(self._abort.close)
        self._status = PinnedMemory(len(abi.STATUS.fields))
        owned.callback(self._status.close)
        self._reports = PinnedMemory(2 * len(schedule.queues) * len(abi.REPORT.fields))
        owned.callback(self._reports.close)
        self._clocks = int(self.watchdog_s * 1e3 * self.context.attribute("CLOCK_RATE"))

    def begin(self, prompt: list[int], eos: list[int]) -> None:
        op, address = self._sample, self.placed.address
        with self._lock, self.context.active():
            self._end_running()
            upload(address[op.prompt], np.array(prompt, dtype=np.int32))
            upload(address[op.prompt_length], np.array([len(prompt)], dtype=np.int32))
            slots = [*eos, *[-1] * (self.eos_slots - len(eos))]
            upload(address[op.eos], np.array(slots, dtype=np.int32))

    def enter(self, ids: list[int]) -> None:
        op, address = self._sample, self.placed.address
        with self._lock, self.context.active():
            self._end_running()
            upload(address[op.next_hidden.buffer], np.stack([self._embedding(token) for token in ids]))
            upload(address[op.stop.buffer], np.zeros(1, dtype=np.int32))

    def run(self, *, pos: int, tokens: int, steps: int) -> Generator[int, None, None]:
        with self._lock:
            self._launch(pos, tokens, steps)
            launch, seen = self.launches, 0
        try:
            while launch == self.launches:
                over = self._is_over()
                done = int(self._status.words[0])
                if done > seen:
                    seen = done
                    yield done
                elif over:
                    break
                else:
                    time.sleep(POLL_S)
        finally:
            with self._lock:
                if launch == self.launches:  # a later launch is none of this iterator's business
                    self._end_running()

    def token(self, position: int) -> int:
        return int(self.placed.host[self._sample.token.buffer].words[position])

    def logits(self) -> torch.Tensor:
        buffer = self.schedule.buffer["logits"]
        out = np.empty(buffer.shape, dtype=np.float32)
        with self.context.active():
            download(self.placed.address["logits"], out)
        return torch.from_numpy(out)

    def close(self) -> None:
        """Free the device; a launch that goes on is stopped first. The backend cannot be used afterwards."""
        try:
            if self._free.alive:
                with self._lock:
                    self._end_running()
        finally:
            self._free()

    def _kernel(self, cubin: Cubin, owned: ExitStack) -> object:
        """Load the kernel, and make sure that all its blocks run at once."""
        if cubin.arch != self.device.arch:
            raise WrongDeviceError(
                wanted=cubin.arch, ordinal=self.device.ordinal, found=self.device.arch, arch=self.device.arch
            )
        built, speaks = cubin.nvrtc, probe().version or (0, 0)
        if speaks[0] < int(built.split(".")[0]):
            found = ".".join(map(str, speaks))
            raise OldDriverError(found=found, built=built, need=f"{built.split('.')[0]}.0")
        from cuda.bindings import driver

        module = call("cuModuleLoadData", cubin.code)
        owned.callback(call, "cuModuleUnload", module)
        function = call("cuModuleGetFunction", module, b"amk_kernel")
        which = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        call("cuFuncSetAttribute", function, which, self.config.shared_bytes)
        each = call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor", function, self.config.threads, self.config.shared_bytes
        )
        most = each * self.context.attribute("MULTIPROCESSOR_COUNT")
        workers = len(self.schedule.queues)
        if workers > most:
            raise GridTooLargeError(workers=workers, name=self.device.name, most=most)
        return function

    def _embedding(self, token: int) -> NDArray[np.float32]:
        """A row of the table as float32, out of the row of tiles that holds it."""
        table = self.schedule.buffer[self._sample.table]
        tiled = table.layout != "plain"
        rows = TILE_ROWS if tiled else 1
        held = np.empty(stored_shape(table)[1:], dtype=np.uint16)
        download(self.placed.address[table.id] + token // rows * held.nbytes, held)
        bits = (held[:, token % rows] if tiled else held).reshape(-1)[: table.shape[1]]
        return (bits.astype(np.uint32) << 16).view(np.float32)

    def _launch(self, pos: int, tokens: int, steps: int) -> None:
        """Start a launch within what the schedule was proved for, and nothing else."""
        self._check(pos, tokens, steps)
        self._end_running()
        self._status.words[:] = 0
        self._reports.words[:] = 0
        params = abi.PARAMS.pack(
            tasks=self._tasks.address,
            queue_begin=self._queue_begin.address,
            counters=self._counters.address,
            abort=self._abort.address,
            status=self._status.address,
            reports=self._reports.address,
            watchdog_clocks=self._clocks,
            steps=steps,
            steps_done=self._steps_done,
            pos=pos,
            tokens=tokens,
        )
        argument = ctypes.create_string_buffer(params, len(params))
        pointers = np.array([ctypes.addressof(argument)], dtype=np.uint64)
        grid, threads = len(self.schedule.queues), self.config.threads
        self.launches += 1
        self._running = True  # before the call: an interrupt behind it must not leave a launch that nobody ends
        with self.context.active():
            call(
                "cuLaunchCooperativeKernel",
                self._function,
                *(grid, 1, 1, threads, 1, 1),
                self.config.shared_bytes,
                self._stream,
                pointers.ctypes.data,
            )

    def _check(self, pos: int, tokens: int, steps: int) -> None:
        fits = 1 <= tokens <= self.tokens_per_pass and 1 <= steps <= self.schedule.steps_max
        if not (fits and 0 <= pos <= self.max_context - steps * tokens):
            raise BadLaunchError(
                pos=pos, tokens=tokens, steps=steps, high=self.tokens_per_pass, context=self.max_context
            )

    def _is_over(self) -> bool:
        from cuda.bindings import driver

        with self.context.active():
            (status,) = driver.cuStreamQuery(self._stream)
            if status == driver.CUresult.CUDA_ERROR_NOT_READY:
                return False
            call("cuStreamSynchronize", self._stream)
        return True

    def _end_running(self) -> None:
        """Wait for the launch, asking it to stop first; a wait of it that ran out is raised here."""
        if not self._running:
            return
        # Nothing is booked before the launch has ended: an interrupt in here leaves it to the next call.
        self._status.words[1] = 1
        with self.context.active():
            call("cuStreamSynchronize", self._stream)
        reports = self._reports.words.reshape(len(self.schedule.queues), 2, -1)
        if not reports[:, :, 0].any():
            self._running, self._steps_done = False, (self._steps_done + int(self._status.words[0])) % 2**32
            return
        error = self._ran_out(reports)
        self._reset()
        self._running = False
        raise error

    def _ran_out(self, reports: NDArray[np.uint32]) -> WatchdogError:
        """Of all waits that an abort found, the one the others stand behind: the earliest step, then the first counter.

        Counters are listed in the order of the hops that signal them.
        """
        found = [
            (int(step), int(counter), worker, int(task), int(value), int(threshold))
            for worker, waiters in enumerate(reports)
            for waiting, task, step, counter, value, threshold in waiters
            if waiting
        ]
        step, counter, worker, task, value, threshold = min(found)
        return WatchdogError(
            seconds=self.watchdog_s,
            task="a warp" if counter == abi.IN_BLOCK else self._names[task],
            worker=worker,
            step=step,
            counter="its own block" if counter == abi.IN_BLOCK else self.schedule.counters[counter].id,
            value=value,
            threshold=threshold,
            others=len(found) - 1,
        )

    def _reset(self) -> None:
        """After an abort counters are undefined: start them again from zero."""
        self._steps_done = 0
        with self.context.active():
            for memory in (self._counters, self._abort):
                memory.clear()


def _free(context: Context, owned: ExitStack) -> None:
    """Free what a backend held; freeing waits for a launch that still runs."""
    with context.active():
        owned.close()
    context.close()
