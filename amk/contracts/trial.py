"""A trial: a kernel, its reference, inputs, and what the gates share when they judge the one by the other."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final, Generic, Protocol, TypeVar

import msgspec
import torch
from torch import Tensor

from amk.contracts.outcomes import Answer, Ask, Died, Outcome, Value
from amk.contracts.resizing import resized_inputs
from amk.contracts.wire import Storages, memory_of, pack

REMEMBERED_BYTES_MAX: Final = 128 << 20
"""Of outcomes, and as much of inputs."""

Key = TypeVar("Key")
Held = TypeVar("Held")


class Subject(Protocol):
    """A kernel, or a reference, in a process of its own."""

    def ask(self, ask: Ask) -> Outcome:
        """Make one call; never raises for anything that the process does."""

    def close(self) -> None:
        """End the process; the next call starts another."""


@dataclass(kw_only=True)
class Trial:
    """What a gate is given.

    Attributes
    ----------
    candidate, reference
        The two subjects.
    device
        ``cpu`` or ``cuda``.
    dtype
        Of the floating inputs; the reference's own outputs may have another.
    seed
        All that is random in a gate comes from it.
    nominal
        The inputs of that seed, of the working size: what was made is cut to one that is quick, if both accept it.
    weights
        Parameters (not buffers) that candidate and reference have under one name and shape, with their values.
    maker
        Makes inputs of the working size under a seed; None: there are no others than ``nominal``.
    deadline
        On ``time.monotonic``: when ``still_running`` ends.
    """

    candidate: Subject
    reference: Subject
    device: str
    dtype: torch.dtype
    seed: int
    nominal: tuple[Value, ...]
    weights: dict[str, Tensor] = field(default_factory=dict)
    maker: Callable[[int], tuple[Value, ...]] | None = None
    deadline: float = float("inf")
    _outcomes: _Memory[bytes, Outcome] = field(default_factory=lambda: _Memory(_bytes_of_outcome), repr=False)
    _resized: _Memory[tuple[tuple[int, int], ...], Resized] = field(
        default_factory=lambda: _Memory(_bytes_of_inputs), repr=False
    )

    def inputs(self, seed: int) -> tuple[Value, ...]:
        """What the input maker makes under a seed; of the working size."""
        if seed == self.seed or self.maker is None:
            return self.nominal
        return self.maker(seed)

    def generator(self, *names: object) -> torch.Generator:
        """A source of random numbers of this trial's seed and of ``names``: the same however often it is asked for."""
        digest = hashlib.sha256(repr((self.seed, *names)).encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)

    def expected(self, inputs: tuple[Value, ...]) -> Outcome:
        """The reference's outcome on ``inputs``, remembered."""
        return self._remembered(Ask(inputs=inputs))

    def exact(self, inputs: tuple[Value, ...]) -> Outcome:
        """The reference's outcome in float64, its inputs and its state upcast; remembered."""
        return self._remembered(Ask(inputs=inputs, dtype=torch.float64))

    def resized(self, sizes: dict[int, int]) -> tuple[Value, ...] | None:
        """Inputs in which every dimension of size ``old`` has size ``new``; None where the reference refuses them."""
        changes = {old: new for old, new in sizes.items() if old != new}
        if not changes:
            return self.nominal
        key = tuple(sorted(changes.items()))
        found = self._resized.get(key)
        if found is None:
            found = self._resized.put(key, Resized(self._accepted(changes)))
        return found.inputs

    def _accepted(self, sizes: dict[int, int]) -> tuple[Value, ...] | None:
        if not any(set(tensor.shape) & set(sizes) for tensor in tensors_of(self.nominal)):
            return None
        # A number that goes with a size, as in f(x, n), follows it where the reference does not take it unchanged.
        for numbers_too in (False, True):
            inputs = resized_inputs(
                self.nominal, sizes, self.generator("resized", sorted(sizes.items())), numbers_too=numbers_too
            )
            if inputs is not None and isinstance(self.expected(inputs), Answer):
                return inputs
        return None

    def still_running(self) -> bool:
        """Whether there is time left for further cases."""
        return monotonic() < self.deadline

    def _remembered(self, ask: Ask) -> Outcome:
        key = _key(ask)
        return self._outcomes.get(key) or self._outcomes.put(key, self._asked(ask))

    def _asked(self, ask: Ask) -> Outcome:
        """The reference's outcome; if its process went without a limit's doing, that of another one."""
        outcome = self.reference.ask(ask)
        went = isinstance(outcome, Died) and outcome.how not in {"hang", "memory"}
        return self.reference.ask(ask) if went else outcome


@dataclass(frozen=True, slots=True)
class Resized:
    """What became of a wish for other sizes."""

    inputs: tuple[Value, ...] | None


class _Memory(Generic[Key, Held]):
    """What was last asked for, up to ``REMEMBERED_BYTES_MAX`` of it."""

    def __init__(self, bytes_of: Callable[[Held], int]) -> None:
        self._bytes_of = bytes_of
        self._bytes = 0
        self._held: OrderedDict[Key, Held] = OrderedDict()

    def get(self, key: Key) -> Held | None:
        if key in self._held:
            self._held.move_to_end(key)
        return self._held.get(key)

    def put(self, key: Key, held: Held) -> Held:
        self._held[key] = held
        self._bytes += self._bytes_of(held)
        while self._bytes > REMEMBERED_BYTES_MAX and self._held:
            self._bytes -= self._bytes_of(self._held.popitem(last=False)[1])
        return held


def _bytes_of_outcome(outcome: Outcome) -> int:
    return sum(value.nbytes for value in outcome.values) if isinstance(outcome, Answer) else 0


def _bytes_of_inputs(resized: Resized) -> int:
    return sum(tensor.nbytes for tensor in tensors_of(resized.inputs or ()))


def _key(ask: Ask) -> bytes:
    """A digest of all that a process would be sent of the inputs."""
    storages = Storages()
    node = pack(ask.inputs, storages)
    total = hashlib.sha256(msgspec.msgpack.encode((str(ask.dtype), node)))
    for flat in storages.flats:
        total.update(memory_of(flat))
    return total.digest()


def tensors_of(inputs: Sequence[Value]) -> list[Tensor]:
    """Tensors among ``inputs``, however they are nested, in order."""
    found: list[Tensor] = []
    for value in inputs:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += tensors_of(value)
        elif isinstance(value, dict):
            found += tensors_of(list(value.values()))
    return found


def is_answer(outcome: Outcome) -> bool:
    """Whether a call came back."""
    return isinstance(outcome, Answer)
