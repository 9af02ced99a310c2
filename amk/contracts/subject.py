"""A kernel, or a reference, in a process of its own."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, TypeVar

import torch
from torch import Tensor

from amk.contracts.errors import WireError
from amk.contracts.harness import codec
from amk.contracts.harness import protocol as p
from amk.contracts.harness.life import EndedError, Life, Limits
from amk.contracts.outcomes import Answer, Ask, Died, Outcome, Raised, Value
from amk.contracts.sources import MODULE_INIT, Source, digest_of
from amk.contracts.wire import Storages
from amk.settings import settings, writable_folder

__all__ = ["Limits", "Process", "Ready"]

LOADS_MAX: Final = 2
"""Attempts at a kernel that dies while it is loaded; after them it counts as one that cannot be."""

Reply = TypeVar("Reply", bound=p.Reply)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A kernel that was loaded.

    Attributes
    ----------
    init
        What its class was built with; None for a callable that came as it is.
    state
        Parameters and buffers by name, as they are before each call; of what is no module, none.
    parameters
        Names of the former.
    """

    init: tuple[Value, ...] | None
    state: dict[str, Tensor]
    parameters: tuple[str, ...]


class Process:
    """A subject. Its process starts with the first request, and anew after a death; use it as a context, or close it.

    Parameters
    ----------
    source
        What to load.
    device, dtype
        Where modules and inputs are put, and what their floating tensors become; ``dtype`` None leaves them.
    seed
        Under which a class is built.
    init
        What a class is built with; None: what its own module makes.
    init_name
        Of the function that makes it.
    inputs
        How ``make`` makes inputs: a source, or a name in the module of ``source``.
    state
        Values for parameters and buffers of what was built, where name and shape agree.
    """

    def __init__(
        self,
        source: Source,
        *,
        device: str = "cpu",
        dtype: torch.dtype | None = None,
        seed: int = 0,
        limits: Limits | None = None,
        init: tuple[Value, ...] | None = None,
        init_name: str = MODULE_INIT,
        inputs: Source | str | None = None,
        state: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.source = source
        self.device = device
        self.dtype = dtype
        self.limits = limits or Limits()
        self._seed = seed
        self._init = init
        self._init_name = init_name
        self._inputs = inputs
        self._state = dict(state or {})
        self._life: Life | None = None
        self._ready: Ready | None = None
        self._has_answered = False
        self._loads_failed = 0
        self._unloadable: Raised | Died | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def load(self) -> Ready | Raised | Died:
        """Start the process, if it is not there, and load the kernel; the other two outcomes are of the loading.

        Raises
        ------
        ForkServerError
        """
        if self._life is not None and self._ready is not None:
            return self._ready
        if self._unloadable is not None:
            return self._unloadable
        try:
            builds = self._builds()
        except UnicodeEncodeError as error:  # half of a surrogate pair: JSON can have one, no file of source text
            self._unloadable = Raised(kind=type(error).__name__, message=str(error))
            return self._unloadable
        self._life = Life(self.limits, builds, self.device)
        storages = Storages()
        request = self._load_request(storages)
        outcome = self._exchange(request, storages, p.Loaded, _ready_of, self.limits.load_timeout_s)
        if isinstance(outcome, Ready):
            self._ready = outcome
            return outcome
        self._loads_failed += 1
        if isinstance(outcome, Died):
            release(self._builds(), older_than_s=0.0)
        is_final = isinstance(outcome, Raised) or outcome.how == "hang"
        if is_final or self._loads_failed >= LOADS_MAX:
            self._unloadable = outcome
        self.close()
        return outcome

    def ask(self, ask: Ask) -> Outcome:
        """Make one request; a kernel that cannot be loaded answers with what became of the loading.

        Raises
        ------
        WireError
            The judge's own inputs cannot be sent.
        ForkServerError
        """
        storages = Storages()
        request = codec.call_of(ask, storages)
        loaded = self.load()
        if not isinstance(loaded, Ready):
            return loaded
        timeout_s = self.limits.timeout_s if self._has_answered else self.limits.first_timeout_s
        outcome = self._exchange(request, storages, p.Returned, codec.answer_of, timeout_s, parts=max(1, ask.repeat))
        self._has_answered |= isinstance(outcome, Answer)
        return outcome

    def make(self, seed: int, cuts: Sequence[tuple[int, int, int]] = ()) -> tuple[Value, ...] | Raised | Died:
        """Inputs that this process makes under a seed; ``cuts`` are as of ``amk.contracts.harness.making``.

        Raises
        ------
        ForkServerError
        """
        loaded = self.load()
        if not isinstance(loaded, Ready):
            return loaded
        request = p.Make(seed=seed, cuts=tuple(cuts))
        return self._exchange(request, Storages(), p.Made, _inputs_of, self.limits.load_timeout_s)

    def close(self) -> None:
        """End the process, with all that it has started, and remove its folder."""
        if self._life is not None:
            self._life.close()
            self._life = self._ready = None

    def _builds(self) -> Path:
        """Builds are kept by kernel, so that none is given what another has built under the same name."""
        builds = writable_folder(settings().cache / "kernels") / digest_of(self.source)[:16]
        release(builds, older_than_s=self.limits.load_timeout_s)
        return builds

    def _load_request(self, storages: Storages) -> p.Load:
        return p.Load(
            source=self.source,
            device=self.device,
            dtype=codec.dtype_name(self.dtype),
            seed=self._seed,
            init=None if self._init is None else codec.tuple_node(self._init, storages),
            init_name=self._init_name,
            inputs=self._inputs,
            state=codec.named_nodes(self._state, storages),
            paths=tuple(str(Path(path or ".").resolve()) for path in sys.path),
            memory_bytes=self.limits.memory_bytes,
        )

    def _exchange(
        self,
        request: p.Request,
        storages: Storages,
        expected: type[Reply],
        convert: Callable[[Reply, Sequence[Tensor]], Result],
        timeout_s: float,
        *,
        parts: int = 1,
    ) -> Result | Raised | Died:
        life = self._life
        assert life is not None
        try:
            reply, flats = life.exchange(request, storages, timeout_s=timeout_s, parts=parts)
            if isinstance(reply, p.Threw):
                return Raised(kind=reply.kind, message=reply.message)
            if not isinstance(reply, expected):
                raise life.refuse(f"a reply {type(reply).__name__} where {expected.__name__} is due")
            try:
                return convert(reply, flats)
            except (WireError, RuntimeError) as error:  # torch may refuse a tensor that a forged frame speaks of
                raise life.refuse(str(error)) from error
        except EndedError as error:
            self._life = self._ready = None
            return error.died


def release(builds: Path, *, older_than_s: float) -> None:
    """Remove locks of builds that were killed: the next one would wait for them without end."""
    for lock in builds.glob("extensions/*/lock"):
        with contextlib.suppress(OSError):
            if time.time() - lock.stat().st_mtime > older_than_s:
                lock.unlink()


def _ready_of(reply: p.Loaded, flats: Sequence[Tensor]) -> Ready:
    init = None if reply.init is None else codec.tuple_of(reply.init, flats)
    return Ready(init=init, state=codec.named_tensors(reply.state, flats), parameters=reply.parameters)


def _inputs_of(reply: p.Made, flats: Sequence[Tensor]) -> tuple[Value, ...]:
    return codec.tuple_of(reply.inputs, flats)
