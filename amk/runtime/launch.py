"""The kernel on a chip: one launch runs many steps, and the host reads tokens while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from msgspec.structs import replace
from numpy.typing import NDArray

from amk.codegen import abi
from amk.codegen.encode import encode
from amk.interpreter.errors import BadLaunchError
from amk.ir.buffers import Operand, first_epoch
from amk.ir.layout import TILE_ROWS, stored_shape
from amk.ir.quantize import dequantized
from amk.ir.tasks import Sample
from amk.runtime.watchdog import wait_that_ran_out
from amk.runtime.weights import Placed

if TYPE_CHECKING:
    from amk.codegen.config import KernelConfig
    from amk.interpreter.memory import LoadRope, LoadTensor
    from amk.ir.schedule import Schedule
    from amk.runtime.chip import Chip
    from amk.validator import ValidatedSchedule

NO_TOKEN: Final = np.uint32(0xFFFFFFFF)
"""What the host puts where a launch will write a token."""

EPOCHS_MAX: Final = 2**32
"""Epochs are words of 32 bits; so are the signals of a counter, whose differences alone matter."""

POLL_S: Final = 20e-6
"""Between two looks at the tokens of a running launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Queues:
    """Queues of a schedule on a chip, as a kernel reads them.

    Attributes
    ----------
    tasks, begin
        Addresses of the tasks, and of each worker's place in them.
    names
        The tasks' ids, by the number that a report names.
    """

    tasks: int
    begin: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamps:
    """Where a stamped kernel writes its ``abi.CLOCKS`` and ``abi.TIMES``: addresses, 0 for a kernel that is not."""

    clocks: int
    times: int


class KernelBackend:
    """A proved schedule, its kernel and its memory on one chip; see ``backend.Backend``.

    Parameters
    ----------
    validated, config
        The schedule, and the constants of the kernel that was built from it.
    chip
        Where that kernel is loaded; closed with the backend, or if that cannot be made.
    load, rope
        As ``interpreter.memory.allocate`` takes them.
    watchdog_s
        Seconds after which a wait inside the kernel ends the launch.

    Attributes
    ----------
    placed
        Where the schedule's buffers are.
    launches
        How many there were.
    stamps
        Of the launches to come.
    """

    def __init__(
        self,
        validated: ValidatedSchedule,
        config: KernelConfig,
        chip: Chip,
        *,
        load: LoadTensor,
        rope: LoadRope,
        watchdog_s: float,
    ) -> None:
        schedule = validated.schedule
        self.schedule = schedule
        self.config = config
        self.chip = chip
        self.watchdog_s = watchdog_s
        self.max_context = schedule.max_context
        self.tokens_per_pass = schedule.symbol("tokens").high
        self.launches = 0
        self.stamps = Stamps(clocks=0, times=0)
        self._sample = next(task.op for task in schedule.tasks if isinstance(task.op, Sample))
        self.eos_slots = schedule.buffer[self._sample.eos].shape[0]
        self._running: Queues | None = None
        self._steps_done = 0  # by launches that have ended
        self._epochs = max((buffer.versions for buffer in schedule.buffers if buffer.tagged), default=1)
        self._lock = threading.RLock()
        try:
            self._take_up(load, rope)
        except BaseException:
            chip.close()
            raise

    def _take_up(self, load: LoadTensor, rope: LoadRope) -> None:
        """Everything on the chip."""
        chip, schedule = self.chip, self.schedule
        self.placed = Placed(schedule, chip, load, rope, head_stride=self.config.head_stride)
        self._queues = self.place(schedule)
        self._counters = chip.memory(4 * abi.COUNTER_STRIDE * len(schedule.counters))
        self._abort = chip.memory(4)
        self._status = chip.pinned(len(abi.STATUS.fields))
        self._reports = chip.pinned(2 * len(schedule.queues) * len(abi.REPORT.fields))
        self._clocks = int(self.watchdog_s * chip.clock_hz)

    def place(self, schedule: Schedule) -> Queues:
        """Put the queues of ``schedule``, whose buffers and workers are this backend's, on the chip for good."""
        encoded = encode(schedule, self.placed.address, self.config)
        tasks = self._hold(np.frombuffer(encoded.tasks, dtype=np.uint8))
        begin = self._hold(np.array(encoded.begin, dtype=np.uint32))
        return Queues(tasks=tasks, begin=begin, names=encoded.names)

    def _hold(self, data: NDArray[Any]) -> int:
        address = self.chip.memory(data.nbytes)
        self.chip.upload(address, data)
        return address

    def begin(self, prompt: list[int], eos: list[int]) -> None:
        op = self._sample
        slots = [*eos, *[-1] * (self.eos_slots - len(eos))]
        with self._lock:
            self._end_running()
            for name, values in ((op.prompt, prompt), (op.prompt_length, [len(prompt)]), (op.eos, slots)):
                self.chip.upload(self.placed.address[name], np.array(values, dtype=np.int32))

    def enter(self, ids: list[int]) -> None:
        op = self._sample
        with self._lock:
            self._end_running()
            rows = np.stack([self._embedding(token) for token in ids]) * np.float32(op.scale)
            self.write(replace(op.next_hidden, lag=1), rows)
            self.chip.upload(self.placed.address[op.stop.buffer], np.zeros(1, dtype=np.int32))

    def write(self, operand: Operand, rows: NDArray[np.float32]) -> None:
        """Give the first rows of a float buffer as the next launch's first step reads them."""
        buffer = self.schedule.buffer[operand.buffer]
        if buffer.tagged:
            epoch = first_epoch(operand, buffer.versions) + self._steps_done * buffer.versions
            rows = np.stack([rows, np.full_like(rows, epoch, dtype=np.uint32).view(np.float32)], axis=-1)
        self.chip.upload(self.placed.address[operand.buffer], rows)

    def run(self, *, pos: int, tokens: int, steps: int) -> Generator[int, None, None]:
        with self._lock:
            self._launch(self._queues, pos, tokens, steps)
            launch, seen = self.launches, 0
        try:
            while True:
                with self._lock:
                    if launch != self.launches:
                        break
                    over = self.chip.is_over()
                    # Of a launch that goes on, only the tokens that it has brought say what is done.
                    done = int(self._status.words[0]) if over else self._brought(pos, tokens, steps, seen)
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

    def _brought(self, pos: int, tokens: int, steps: int, seen: int) -> int:
        """Steps whose token is there; ``seen`` are known to be."""
        words = self.placed.host[self._sample.token.buffer].words
        while seen < steps and words[pos + (seen + 1) * tokens] != NO_TOKEN:
            seen += 1
        return seen

    def run_apart(self, queues: Queues, *, pos: int, tokens: int) -> None:
        """One step of other queues on the memory as it is, to its end: to look at single tasks of a schedule.

        None of their tasks may wait or signal, so that the counters stay as the schedule's own launches left them.

        Raises
        ------
        BadLaunchError, WatchdogError
        """
        with self._lock:
            self._launch(queues, pos, tokens, 1)
            self.chip.wait()  # asking it to stop would be seen by a sampler
            self._end_running()

    def token(self, position: int) -> int:
        return int(self.placed.host[self._sample.token.buffer].words[position])

    def logits(self) -> torch.Tensor:
        out = np.empty(self.schedule.buffer["logits"].shape, dtype=np.float32)
        with self._lock:
            self.chip.download(self.placed.address["logits"], out)
        return torch.from_numpy(out)

    def close(self) -> None:
        """Free the chip; a launch that goes on is stopped first. The backend cannot be used afterwards."""
        try:
            with self._lock:
                self._end_running()
        finally:
            self._running = None
            self.chip.close()

    def _embedding(self, token: int) -> NDArray[np.float32]:
        """A row of the table as float32, out of the row of tiles that holds it."""
        table = self.schedule.buffer[self._sample.table]
        tiled = table.layout != "plain"
        rows = TILE_ROWS if tiled else 1
        held = np.empty(stored_shape(table)[1:], dtype=np.int8 if table.dtype == "i8" else np.uint16)
        self.chip.download(self.placed.address[table.id] + token // rows * held.nbytes, held)
        row = (held[:, token % rows] if tiled else held).reshape(-1)[: table.shape[1]]
        if self._sample.scales is None:
            return (row.astype(np.uint32) << 16).view(np.float32)
        scales = self.schedule.buffer[self._sample.scales]
        scale = np.empty((1, scales.shape[1]), dtype=np.float32)
        self.chip.download(self.placed.address[scales.id] + token * scale.nbytes, scale)
        made: NDArray[np.float32] = dequantized(row[None], scale, group=self._sample.group)[0]
        return made

    def _launch(self, queues: Queues, pos: int, tokens: int, steps: int) -> None:
        """Start a launch within what the schedule was proved for, and nothing else."""
        self._check(pos, tokens, steps)
        self._end_running()
        if (self._steps_done + steps + 1) * self._epochs >= EPOCHS_MAX:
            self._restart()
        self._status.words[:] = 0
        self._reports.words[:] = 0
        self.placed.host[self._sample.token.buffer].words[pos + tokens : pos + steps * tokens + 1] = NO_TOKEN
        params = abi.PARAMS.pack(
            tasks=queues.tasks,
            queue_begin=queues.begin,
            counters=self._counters,
            abort=self._abort,
            status=self._status.address,
            reports=self._reports.address,
            watchdog_clocks=self._clocks,
            clocks=self.stamps.clocks,
            times=self.stamps.times,
            tasks_total=len(queues.names),
            steps=steps,
            steps_done=self._steps_done,
            pos=pos,
            tokens=tokens,
        )
        self.launches += 1
        self._running = queues  # before the call: an interrupt behind it must not leave a launch that nobody ends
        self.chip.launch(params, rows=tokens > 1)

    def _check(self, pos: int, tokens: int, steps: int) -> None:
        fits = 1 <= tokens <= self.tokens_per_pass and 1 <= steps <= self.schedule.steps_max
        if not (fits and 0 <= pos <= self.max_context - steps * tokens):
            raise BadLaunchError(
                pos=pos, tokens=tokens, steps=steps, high=self.tokens_per_pass, context=self.max_context
            )

    def _end_running(self) -> None:
        """Wait for the launch, asking it to stop first; a wait of it that ran out is raised here."""
        running = self._running
        if running is None:
            return
        # Nothing is booked before the launch has ended: an interrupt in here leaves it to the next call.
        self._status.words[1] = 1
        self.chip.wait()
        reports = self._reports.words.reshape(len(self.schedule.queues), 2, -1)
        if not reports[:, :, 0].any():
            done = int(self._status.words[0]) if running is self._queues else 0
            self._running, self._steps_done = None, (self._steps_done + done) % 2**32
            return
        error = wait_that_ran_out(reports, schedule=self.schedule, tasks=running.names, seconds=self.watchdog_s)
        self._restart()
        self._running = None
        raise error

    def _restart(self) -> None:
        """Count steps from zero again: counters and epochs are zero, and values stay, for a launch may go on from them.

        After an abort both are undefined; and epochs must not come round to what old words carry.
        """
        self._steps_done = 0
        for address, words in ((self._counters, abi.COUNTER_STRIDE * len(self.schedule.counters)), (self._abort, 1)):
            self.chip.upload(address, np.zeros(words, dtype=np.uint32))
        for buffer in self.schedule.buffers:
            if buffer.tagged:
                held = np.empty((*buffer.shape, 2), dtype=np.uint32)
                self.chip.download(self.placed.address[buffer.id], held)
                held[..., 1] = 0
                self.chip.upload(self.placed.address[buffer.id], held)
