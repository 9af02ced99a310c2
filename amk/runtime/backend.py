"""What a session needs of a device, and the backend that is the reference machine on this CPU."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Protocol

from amk.interpreter.machine import Machine, Order
from amk.interpreter.memory import LoadRope, LoadTensor, allocate
from amk.interpreter.semantics import embed
from amk.interpreter.threads import one_thread
from amk.ir.tasks import Sample

if TYPE_CHECKING:
    from torch import Tensor

    from amk.validator import ValidatedSchedule


class Backend(Protocol):
    """A validated schedule with memory, somewhere.

    Positions are absolute; token ids are plain ints. After an exception in ``run`` the state of the sequence is
    undefined, and the next ``begin`` starts a fresh one.
    """

    max_context: int
    tokens_per_pass: int
    eos_slots: int

    def begin(self, prompt: list[int], eos: list[int]) -> None:
        """Start a sequence: inputs set, nothing processed yet. A run that goes on is stopped."""

    def enter(self, ids: list[int]) -> None:
        """Make ``ids`` the rows of the next step: the state that a step before would have left."""

    def run(self, *, pos: int, tokens: int, steps: int) -> Generator[int, None, None]:
        """Run at most ``steps`` steps of ``tokens`` rows; the number done, each time that it has grown.

        Fewer if a step stops the launch. Dropping the iterator stops it too.
        """

    def token(self, position: int) -> int:
        """The token that a step chose for ``position``."""

    def logits(self) -> Tensor:
        """[vocab] float32 logits of the last step, on the CPU."""

    def close(self) -> None:
        """Give memory and device back; the backend cannot be used afterwards."""


class MachineBackend:
    """The reference machine. ``orders`` collects what each launch did."""

    def __init__(
        self, validated: ValidatedSchedule, load: LoadTensor, rope: LoadRope, *, seed: int | None = None
    ) -> None:
        schedule = validated.schedule
        self.max_context = schedule.max_context
        self.tokens_per_pass = schedule.symbol("tokens").high
        self.memory = allocate(schedule, load, rope)
        self.machine = Machine(schedule, self.memory, seed=seed)
        self.orders: list[Order] = []
        self._sample = next(task.op for task in schedule.tasks if isinstance(task.op, Sample))
        self.eos_slots = schedule.buffer[self._sample.eos].shape[0]

    def begin(self, prompt: list[int], eos: list[int]) -> None:
        import torch

        op = self._sample
        self.memory[op.prompt][: len(prompt)] = torch.tensor(prompt, dtype=torch.int32)
        self.memory[op.prompt_length][0] = len(prompt)
        self.memory[op.eos].fill_(-1)
        self.memory[op.eos][: len(eos)] = torch.tensor(eos, dtype=torch.int32)
        self.memory[op.stop.buffer].zero_()

    def enter(self, ids: list[int]) -> None:
        embed(self._sample, self.memory, ids)
        self.memory[self._sample.stop.buffer].zero_()

    def run(self, *, pos: int, tokens: int, steps: int) -> Generator[int, None, None]:
        for step in range(steps):
            with one_thread():
                order = self.machine.launch(pos=pos + step * tokens, tokens=tokens, steps=1)
            self.orders.append(order)
            if order.steps == 0:
                return
            yield step + 1

    def token(self, position: int) -> int:
        return int(self.memory[self._sample.token.buffer][position])

    def logits(self) -> Tensor:
        return self.memory["logits"].clone()

    def close(self) -> None:
        self.memory.clear()
