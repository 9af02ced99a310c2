"""What the judge, the process that kernels are forked from, and a kernel's process say to each other.

Tensors are nodes into the frame's storages.
"""

from __future__ import annotations

from typing import Final, TypeAlias, dataclass_transform

import msgspec

from amk.contracts.sources import Source
from amk.contracts.wire import TensorNode, TupleNode

STATUS_DEFECT: Final = 70  # EX_SOFTWARE of sysexits.h: what runs the kernel could not go on
STATUS_CLOSED: Final = 71  # EX_OSERR: the connection to the judge is gone
STATUS_KILLED: Final = -1  # no exit status: it was ended from outside


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Message(msgspec.Struct, frozen=True, kw_only=True, array_like=True, forbid_unknown_fields=True):
    """The base of all that is said."""


class Load(Message, tag="load"):
    """Build the kernel.

    Attributes
    ----------
    init
        The arguments of a class; None: make them with the function of that name in ``source``'s own module.
    state
        Values for parameters and buffers that have the same name and shape; others keep their own.
    paths
        The judge's own ``sys.path``.
    """

    source: Source
    device: str
    dtype: str | None
    seed: int
    init: TupleNode | None
    init_name: str
    inputs: Source | str | None
    state: dict[str, TensorNode]
    paths: tuple[str, ...]
    memory_bytes: int


class Make(Message, tag="make"):
    """Make inputs under ``seed``; ``cuts`` are as of ``amk.contracts.working``."""

    seed: int
    cuts: tuple[tuple[int, int, int], ...] = ()


class Call(Message, tag="call"):
    """An ``Ask``."""

    inputs: TupleNode
    dtype: str | None
    cotangents: tuple[TensorNode | None, ...] | None
    repeat: int
    disturb: bool
    poison: int | None
    reuse: bool
    state: dict[str, TensorNode] | None
    late: bool


Request: TypeAlias = Load | Make | Call


class Loaded(Message, tag="loaded"):
    """The kernel is there.

    Attributes
    ----------
    init
        What its class was built with; None for a callable that came as it is.
    state
        Parameters and buffers by name; ``parameters`` are the names of the former.
    """

    init: TupleNode | None
    state: dict[str, TensorNode]
    parameters: tuple[str, ...]


class Made(Message, tag="made"):
    inputs: TupleNode


class OutputNode(Message):
    value: TensorNode
    stride: tuple[int, ...]
    device: str
    kind: str
    requires_grad: bool
    aliases: tuple[str, ...]


class Returned(Message, tag="returned"):
    """An ``Answer``."""

    outputs: tuple[OutputNode, ...]
    structure: str
    digests: tuple[str, ...]
    inputs_changed: tuple[str, ...]
    state_changed: tuple[str, ...]
    late_change: tuple[str, ...]
    threads: tuple[str, ...]
    patched: tuple[str, ...]
    input_gradients: tuple[TensorNode | None, ...]
    state_gradients: dict[str, TensorNode | None]
    seconds: float


class Threw(Message, tag="threw"):
    """The kernel raised."""

    kind: str
    message: str


class Dying(Message, tag="dying"):
    """The process cannot go on; ``how`` is one of ``Died``'s."""

    how: str
    detail: str


class Progress(Message, tag="progress"):
    """One of a request's repetitions is done."""


Reply: TypeAlias = Loaded | Made | Returned | Threw | Dying | Progress


class Spawn(Message, tag="spawn"):
    """Fork a process for a kernel; with this come two descriptors: its end of the connection, and its output.

    Attributes
    ----------
    folder
        Its working directory.
    address_bytes
        By which its address space may grow; None for no such limit.
    removable
        Folders in which it may remove files, beside its own.
    environment
        Variables that it sees beside this process's own.
    """

    folder: str
    address_bytes: int | None
    removable: tuple[str, ...]
    environment: dict[str, str]


class Reap(Message, tag="reap"):
    """Kill what is left of a process and of all that it has started.

    It is answered with the process's status as of ``waitpid``; ``STATUS_KILLED`` if it did not end within ``grace_s``.
    """

    pid: int
    grace_s: float
