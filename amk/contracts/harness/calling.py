"""One request: the calls that it asks for, and the answer they make."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from typing import Final

import torch
from torch import Tensor

from amk.contracts.harness.bits import digest
from amk.contracts.harness.codec import tensor_node
from amk.contracts.harness.fingerprint import Fingerprint
from amk.contracts.harness.loading import Kernel
from amk.contracts.harness.memory import disturbed
from amk.contracts.harness.placing import Placed, Plan, place, place_empty, planned
from amk.contracts.harness.protocol import Call, OutputNode, Returned
from amk.contracts.harness.returned import Leaf
from amk.contracts.harness.seeing import Circumstances, Seen, see, see_late
from amk.contracts.wire import DTYPES, Storages, leaf_in

GRACE_S: Final = 0.05
"""That threads which a call has left running get, before its outputs are looked at again; so often a process."""

GRACES_MAX: Final = 20

_sleep = time.sleep
_default_dtype, _set_default_dtype = torch.get_default_dtype, torch.set_default_dtype


class Caller:
    """Calls ``kernel``, and keeps what has to be looked at once more at the next request."""

    def __init__(self, kernel: Kernel, device: str, fingerprint: Fingerprint, progress: Callable[[], None]) -> None:
        self._kernel = kernel
        self._device = device
        self._fingerprint = fingerprint
        self._progress = progress
        self._placed: Placed | None = None
        self._earlier: dict[int, Leaf] = {}
        self._graces = GRACES_MAX

    def answer(self, request: Call, flats: list[Tensor], storages: Storages) -> Returned:
        """Make the calls. What the kernel raises, this raises."""
        dtype = None if request.dtype is None else DTYPES[request.dtype]
        call, state = self._kernel.at(dtype)
        plan = planned(request.inputs, flats, dtype)
        leaf = leaf_in(flats)
        cotangents = request.cotangents
        around = Circumstances(
            call=call,
            state=state,
            values={name: leaf(node) for name, node in (request.state or {}).items()},
            cotangents=None if cotangents is None else [None if one is None else leaf(one) for one in cotangents],
            poison=request.poison,
            device=self._device,
        )
        digests: list[str] = []
        first: Seen | None = None
        with _dtype_by_default(dtype):
            for repetition in range(max(1, request.repeat)):
                seen = self._once(request, plan, around, repetition)
                digests.append(digest([leaf.value for leaf in seen.leaves]))
                first = first or seen
                if request.repeat > 1:
                    self._progress()
        assert first is not None
        return self._returned(first, tuple(digests), storages)

    def _once(self, request: Call, plan: Plan, around: Circumstances, repetition: int) -> Seen:
        if request.late and self._device == "cuda":
            return see_late(around, place_empty(plan, self._device))
        source = random.Random(repetition)
        with disturbed(source, self._device) if request.disturb else contextlib.nullcontext():
            self._placed = place(plan, self._device, self._placed if request.reuse else None)
            try:
                return see(around, self._placed)
            except Exception:
                if request.poison is None:
                    raise
            # A kernel may not run under a mode of torch's (one that torch compiles, for instance); then it is judged
            # with what can be poisoned without. If that was not why, it raises once more.
            self._placed = place(plan, self._device, None)
            return see(around, self._placed, through_torch=False)

    def _returned(self, seen: Seen, digests: tuple[str, ...], storages: Storages) -> Returned:
        if seen.threads and self._graces:
            self._graces -= 1
            _sleep(GRACE_S)
        late = [f"output {at}" for at, leaf in seen.own.items() if leaf.has_changed()]
        late += [f"earlier output {at}" for at, leaf in self._earlier.items() if leaf.has_changed()]
        self._earlier = seen.own
        return Returned(
            outputs=tuple(
                _output(leaf, aliases, storages) for leaf, aliases in zip(seen.leaves, seen.aliases, strict=True)
            ),
            structure=seen.structure,
            digests=digests,
            inputs_changed=seen.inputs_changed,
            state_changed=seen.state_changed,
            late_change=tuple(late),
            threads=seen.threads,
            patched=self._fingerprint.changes(),
            input_gradients=tuple(None if one is None else tensor_node(one, storages) for one in seen.input_gradients),
            state_gradients={
                name: None if one is None else tensor_node(one, storages) for name, one in seen.state_gradients.items()
            },
            seconds=seen.seconds,
        )


def _output(leaf: Leaf, aliases: tuple[str, ...], storages: Storages) -> OutputNode:
    return OutputNode(
        value=tensor_node(leaf.value, storages),
        stride=leaf.stride,
        device=leaf.device,
        kind=leaf.kind,
        requires_grad=leaf.requires_grad,
        aliases=aliases,
    )


@contextlib.contextmanager
def _dtype_by_default(dtype: torch.dtype | None) -> Iterator[None]:
    """What a kernel makes without a dtype has the one of the call, as its inputs have."""
    before = _default_dtype()
    if dtype is not None and dtype.is_floating_point and dtype.itemsize >= 2:
        _set_default_dtype(dtype)
    try:
        yield
    finally:
        _set_default_dtype(before)
