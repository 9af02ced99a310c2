"""Task by task, the kernel against the reference machine: ``python -m tests.gpu.diff MODEL --tokens N``.

Each hop is launched alone, on the machine's own memory, so that one wrong task does not make the next ones wrong: the
first task whose written regions differ is the one at fault.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from msgspec.structs import replace

import amk
from amk.ir.buffers import Operand
from amk.ir.regions import concrete, show_region
from amk.ir.schedule import Task
from amk.ir.tasks import Sample
from amk.pipeline import CompiledModel
from amk.runtime.launch import KernelBackend, Queues
from amk.runtime.session import passes
from amk.runtime.watchdog import hop_of
from amk.runtime.watchdog import hops as hops_in_order

TOLERANCE = {"f32": 2e-4, "bf16": 2.0**-7, "i32": 0.0}
"""Of a region's largest element: sums in another order and exponentials of another library; a rounding of bf16."""

WRITTEN = ("activation", "state", "kv", "output")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A written region of one task that is not the machine's."""

    task: str
    region: str
    pos: int
    apart: float

    def __str__(self) -> str:
        return f"{self.task} at position {self.pos}: {self.region} differs by {self.apart:.3g} of its largest element"


class Lockstep:
    """A kernel and the machine on the same sequence; ``check`` runs one step of both, hop by hop."""

    def __init__(self, model: CompiledModel) -> None:
        self.schedule = model.schedule
        self.machine = model.machine_session().backend
        self.kernel: KernelBackend = model.session.backend
        self.hops = [self._alone(hop) for hop in self._by_hop()]

    def _by_hop(self) -> list[list[Task]]:
        hops: dict[str, list[Task]] = {}
        for task in self.schedule.tasks:
            if not task.id.startswith("begin#"):
                hops.setdefault(hop_of(task.id), []).append(task)
        return [hops[name] for name in hops_in_order(self.schedule) if name in hops]

    def _alone(self, tasks: list[Task]) -> tuple[list[Task], Queues]:
        """The hop as queues of its own: nothing to wait for and nothing to signal."""
        names = {task.id for task in tasks}
        bare = tuple(replace(task, waits=(), signals=()) for task in tasks)
        queues = tuple(
            replace(queue, tasks=tuple(name for name in queue.tasks if name in names)) for queue in self.schedule.queues
        )
        return tasks, self.kernel.place(replace(self.schedule, tasks=bare, queues=queues))

    def start(self, prompt: list[int]) -> None:
        for backend in (self.machine, self.kernel):
            backend.begin(prompt, [])
            backend.enter(prompt[: backend.tokens_per_pass])
        for buffer in self.schedule.buffers:
            if buffer.kind in WRITTEN:
                self._send(Operand(buffer=buffer.id))

    def check(self, *, pos: int, tokens: int) -> Iterator[Difference]:
        env = {"pos": pos, "tokens": tokens}
        run = {item.name: item.run for queue in self.machine.machine._queues for item in queue}
        first = next(task.op.next_hidden for task in self.schedule.tasks if isinstance(task.op, Sample))
        self._send(replace(first, lag=1))
        for tasks, alone in self.hops:
            self.kernel.run_apart(alone, pos=pos, tokens=tokens)
            for task in tasks:
                run[task.id](pos, tokens)
            for task in tasks:
                for write in task.writes:
                    index = tuple(slice(low, high) for low, high in concrete(write.region.box, env))
                    ours = self._fetch(write.region.buffer)[index].double()
                    theirs = self.machine.memory[write.region.buffer][index].double()
                    apart = float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-20))
                    limit = TOLERANCE[self.schedule.buffer[write.region.buffer].dtype]
                    if not (apart <= limit or torch.equal(ours, theirs)):
                        yield Difference(task=task.id, region=show_region(write.region), pos=pos, apart=apart)
            written = {(write.region.buffer, write.version) for task in tasks for write in task.writes}
            for name, version in sorted(written):
                self._send(Operand(buffer=name, version=version))

    def _send(self, operand: Operand) -> None:
        """What the machine holds of a buffer, as the kernel reads it in its next launch."""
        name = operand.buffer
        tensor = self.machine.memory[name]
        if name == "token":
            self.kernel.placed.host["token"].words[:] = tensor.numpy().view(np.uint32)
            return
        if self.schedule.buffer[name].tagged:
            self.kernel.write(operand, tensor.numpy())
            return
        if self.schedule.buffer[name].kind == "kv":
            tensor = torch.nn.functional.pad(tensor, (0, self.kernel.config.head_stride - tensor.shape[-1]))
        bits = tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor
        self.kernel.chip.upload(self.kernel.placed.address[name], bits.contiguous().numpy())

    def _fetch(self, name: str) -> torch.Tensor:
        like = self.machine.memory[name]
        if name == "token":
            return torch.from_numpy(self.kernel.placed.host["token"].words.view(np.int32).copy())
        shape = like.shape
        if self.schedule.buffer[name].tagged:
            words = np.empty((*shape, 2), dtype=np.float32)
            self.kernel.chip.download(self.kernel.placed.address[name], words)
            return torch.from_numpy(words[..., 0].copy())
        if self.schedule.buffer[name].kind == "kv":
            shape = (*shape[:-1], self.kernel.config.head_stride)
        held = torch.empty(shape, dtype=like.dtype)
        bits = held.view(torch.int16) if like.dtype == torch.bfloat16 else held
        self.kernel.chip.download(self.kernel.placed.address[name], bits.numpy())
        return held[..., : like.shape[-1]]


def differences(model: CompiledModel, prompt: list[int], *, tokens: int) -> Iterator[Difference]:
    """Every written region that differs over the prompt's passes and ``tokens`` steps more, the first one first."""
    both = Lockstep(model)
    both.start(prompt)
    pos = 0
    for steps, rows in [*passes(len(prompt), both.kernel.tokens_per_pass), *[(1, 1)] * (tokens - 1)]:
        for _ in range(steps):
            yield from both.check(pos=pos, tokens=rows)
            pos += rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=2)
    parser.add_argument("--kv-dtype", default="float32")
    parser.add_argument("--arch", help="of the kernel; this machine's GPU otherwise")
    words = parser.parse_args()
    source = Path(words.model) if "/" in words.model else words.model
    model = amk.compile(source, arch=words.arch, kv_dtype=words.kv_dtype, max_context=512)
    prompt = [(7 * i * i + 3) % min(model.graph.vocab, 1000) for i in range(11)]
    found = next(differences(model, prompt, tokens=words.tokens), None)
    sys.stdout.write(f"first difference: {found}\n" if found else f"no task differs over {words.tokens} tokens\n")
    return int(found is not None)


if __name__ == "__main__":
    sys.exit(main())
