"""What the judge asks of a kernel's process, and what comes back: an answer, an error, or a death."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import torch
from torch import Tensor

Value: TypeAlias = "Tensor | int | float | bool | str | list[Value] | tuple[Value, ...] | dict[str, Value] | None"
"""What a kernel may be given and may return. The judge's tensors are on the CPU; in the kernel's process they have the
same strides, in storages of the same size that are shared alike, on its device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request: call the kernel on ``inputs``, under circumstances.

    Attributes
    ----------
    inputs
        The positional arguments.
    dtype
        Floating inputs, parameters and buffers become this for the call; None leaves all as it is.
    cotangents
        One an output leaf: what to run backward with, None for a leaf that takes no part; ``()`` records a graph and
        runs nothing. None: no graph, unless an input asks for one. Input tensors that have ``requires_grad`` have it
        in the call.
    repeat
        Calls to make on fresh copies of the inputs; ``Answer.outputs`` is the first one's, ``Answer.digests`` all.
    disturb
        Before each call leave the allocator, the caches and the CPU's or the device's load in another state.
    poison
        A byte that memory is filled with when the kernel allocates it; None leaves it as it comes.
    reuse
        Write the inputs into the storages of the call before, in place, instead of making new ones.
    state
        Parameters and buffers by name, written in place before the call; behind it all state is what it was.
    late
        On a device: make the inputs on a side stream behind a long wait, call on that stream, read the results there.
    """

    inputs: tuple[Value, ...]
    dtype: torch.dtype | None = None
    cotangents: tuple[Tensor | None, ...] | None = None
    repeat: int = 1
    disturb: bool = False
    poison: int | None = None
    reuse: bool = False
    state: dict[str, Tensor] | None = None
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One tensor that came back.

    Attributes
    ----------
    value
        Its elements, contiguous, on the CPU; empty where it has none that could be read. A number that is a Python
        float counts as a tensor, float64 and without dimensions.
    stride, device, kind, requires_grad
        As the kernel returned it; ``kind`` is the name of its class.
    aliases
        What it shares memory with: ``input 0``, ``output 1``, ``parameter weight``, ``buffer mean``.
    """

    value: Tensor
    stride: tuple[int, ...]
    device: str
    kind: str
    requires_grad: bool
    aliases: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A call that came back.

    Attributes
    ----------
    structure
        How the outputs are nested, with the types of what is no tensor: ``(tensor, [tensor, 3])``.
    digests
        Of each repetition, one digest of all outputs' bytes.
    inputs_changed, state_changed
        Names of what was not after the call what it was before: storages of inputs (guard bands and all), parameters,
        buffers; ``rng cpu``, ``rng cuda``. ``input 1`` is the second tensor among all arguments.
    late_change
        ``output 0`` changed after the call had returned; ``earlier output 0``, of the request before, has since.
    threads
        Names of threads that are alive beside the one that called: none is when the process starts.
    patched
        What the kernel has replaced in torch, builtins or time: ``torch.allclose``.
    input_gradients, state_gradients
        Behind a backward, None for what has none.
    seconds
        Of the first call, by the process's own clock.
    """

    outputs: tuple[Output, ...]
    structure: str
    digests: tuple[str, ...]
    inputs_changed: tuple[str, ...] = ()
    state_changed: tuple[str, ...] = ()
    late_change: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    patched: tuple[str, ...] = ()
    input_gradients: tuple[Tensor | None, ...] = ()
    state_gradients: dict[str, Tensor | None] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def values(self) -> tuple[Tensor, ...]:
        """The outputs' elements."""
        return tuple(output.value for output in self.outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """The kernel raised: an error of its own, by which it says that it does not do this."""

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Died:
    """The kernel's process did not live through the call; the next call starts another."""

    how: Literal["crash", "hang", "exit", "memory", "device", "protocol"]
    detail: str

    def __str__(self) -> str:
        return f"{self.how}: {self.detail}"


Outcome: TypeAlias = Answer | Raised | Died
