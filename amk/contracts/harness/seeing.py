"""One call of a kernel, and what is seen of it: what came back, and what else is not as it was."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor

from amk.contracts.harness import device as devices
from amk.contracts.harness.bits import copied, same_bits
from amk.contracts.harness.loading import seed_all
from amk.contracts.harness.memory import poisoned
from amk.contracts.harness.placing import Placed
from amk.contracts.harness.returned import Leaf, aliases_of, taken
from amk.contracts.harness.state import State

CALL_SEED: Final = 0x5EED0FACA11
"""Of the generators before every call: no seed that a kernel would set by itself."""

_clock = time.perf_counter
_frames, _threads = sys._current_frames, threading.enumerate  # noqa: SLF001 - also of threads that threading does not know
_ident = threading.get_ident
_grad_mode, _backward = torch.set_grad_enabled, torch.autograd.backward


class SilentLaunchError(Exception):
    """The device reports an error that the kernel has not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """How a call is made.

    Attributes
    ----------
    call, state
        What is called, and what it has; ``values`` are written over the latter before.
    cotangents
        One an output leaf, to run backward with; None: without a graph, unless an input asks for one.
    """

    call: Callable[..., object]
    state: State
    values: Mapping[str, Tensor]
    cotangents: Sequence[Tensor | None] | None
    poison: int | None
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was seen of one call; the fields are those of ``Answer``, but for ``aliases``, one an output."""

    leaves: tuple[Leaf, ...]
    structure: str
    aliases: tuple[tuple[str, ...], ...]
    seconds: float = 0.0
    threads: tuple[str, ...] = ()
    inputs_changed: tuple[str, ...] = ()
    state_changed: tuple[str, ...] = ()
    input_gradients: tuple[Tensor | None, ...] = ()
    state_gradients: dict[str, Tensor | None] = field(default_factory=dict)

    @property
    def own(self) -> dict[int, Leaf]:
        """Outputs that live in memory which nobody but the kernel writes to: not in inputs, not in the state."""
        return {
            at: leaf
            for at, (leaf, aliases) in enumerate(zip(self.leaves, self.aliases, strict=True))
            if all(name.startswith("output") for name in aliases)
        }


def see(around: Circumstances, placed: Placed, *, through_torch: bool = True) -> Seen:
    """Call, and look. What the kernel raises, this raises; the state is then what it was before.

    Parameters
    ----------
    through_torch
        As of ``poisoned``.

    Raises
    ------
    SilentLaunchError
    """
    state, device = around.state, around.device
    as_before = False
    try:
        state.write(around.values)
        seed_all(CALL_SEED)
        generators = devices.random_state(device)
        records = around.cotangents is not None or any(leaf.requires_grad for leaf in placed.leaves)
        with poisoned(around.poison, device, through_torch=through_torch), _grad_mode(records):
            start = _clock()
            result = around.call(*placed.arguments)
            _settle(device)
            seconds = _clock() - start
            leaves, structure = taken(result)
            if around.cotangents is not None:
                _run_backward(leaves, around.cotangents)
                _settle(device)
        threads = _strays()
        drawn = [name for name, now in devices.random_state(device).items() if not same_bits(now, generators[name])]
        changed = state.changed_by(around.values)
        as_before = not changed and not around.values
        labels = {f"input {at}": leaf for at, leaf in enumerate(placed.leaves)} | state.labels
        return Seen(
            leaves=leaves,
            structure=structure,
            aliases=aliases_of(leaves, labels),
            seconds=seconds,
            threads=threads,
            inputs_changed=placed.changed(),
            state_changed=(*changed, *drawn),
            **({} if around.cotangents is None else _gradients(placed, state)),
        )
    finally:
        if not as_before:
            state.restore()


def see_late(around: Circumstances, placed: Placed) -> Seen:
    """Call on a side stream, on inputs that come late; ``placed`` is of ``place_empty``. Only outputs are looked at."""
    sources = devices.pinned(placed.plan.flats)
    try:
        around.state.write(around.values)
        with _grad_mode(mode=False):
            seed_all(CALL_SEED)
            leaves, structure = devices.call_late(around.call, placed, sources, taken)
            _settle(around.device)
        return Seen(leaves=leaves, structure=structure, aliases=aliases_of(leaves, {}))
    finally:
        around.state.restore()


def _settle(device: str) -> None:
    try:
        devices.settle(device)
    except Exception as error:
        raise SilentLaunchError(str(error)) from error


def _run_backward(leaves: Sequence[Leaf], cotangents: Sequence[Tensor | None]) -> None:
    """Run backward from the outputs that have a cotangent."""
    pairs = [
        (leaf.tensor, one.to(device=leaf.tensor.device, dtype=leaf.tensor.dtype))
        for leaf, one in zip(leaves, cotangents, strict=False)
        if one is not None
    ]
    if pairs:
        _backward([tensor for tensor, _ in pairs], [one for _, one in pairs])


def _gradients(placed: Placed, state: State) -> dict[str, Any]:
    return {
        "input_gradients": tuple(_gradient(leaf) for leaf in placed.leaves),
        "state_gradients": {name: _gradient(one) for name, one in state.parameters.items()},
    }


def _gradient(tensor: Tensor) -> Tensor | None:
    """A copy of a tensor's gradient, which it then no longer has."""
    gradient, tensor.grad = tensor.grad, None
    return None if gradient is None else copied(gradient)


def _strays() -> tuple[str, ...]:
    """Names of threads that run Python beside this one, but for those of torch's compiler, and of its progress bars."""
    idents = set(_frames()) - {_ident()}
    if not idents:
        return ()
    known = {thread.ident: thread for thread in _threads()}
    names = [f"thread {ident}" for ident in idents - set(known)]
    names += [thread.name for ident, thread in known.items() if ident in idents and not _is_the_compilers(thread)]
    return tuple(sorted(names))


def _is_the_compilers(thread: threading.Thread) -> bool:
    homes = (type(thread).__module__, str(getattr(getattr(thread, "_target", None), "__module__", "")))
    return any(home.startswith(("torch._inductor.", "torch._dynamo.", "tqdm.")) for home in homes)
