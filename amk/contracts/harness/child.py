"""The life of a kernel's process: load once, then answer until the judge closes."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import socket
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from torch import Tensor

from amk.contracts.errors import WireError
from amk.contracts.harness import device as devices
from amk.contracts.harness.calling import Caller
from amk.contracts.harness.channel import Channel, ClosedError
from amk.contracts.harness.codec import tensor_node
from amk.contracts.harness.fingerprint import Fingerprint
from amk.contracts.harness.loading import Kernel, load
from amk.contracts.harness.making import made
from amk.contracts.harness.protocol import (
    STATUS_CLOSED,
    STATUS_DEFECT,
    Call,
    Dying,
    Load,
    Loaded,
    Made,
    Make,
    Progress,
    Reply,
    Request,
    Threw,
)
from amk.contracts.harness.seeing import SilentLaunchError
from amk.contracts.outcomes import Value
from amk.contracts.wire import DTYPES, Storages, TensorNode, TupleNode, leaf_in, pack
from amk.settings import set_environment

MESSAGE_MAX: Final = 2000
BALLAST_BYTES: Final = 4 << 20
"""Given up when memory has run out, so that this can still be said."""

_exit = os._exit


class Child:
    """Answers requests about one kernel."""

    def __init__(self, channel: Channel[Request]) -> None:
        self._channel = channel
        self._fingerprint = Fingerprint()
        self._token = b""
        self._kernel: Kernel | None = None
        self._caller: Caller | None = None
        self._device = "cpu"
        self._dtype: str | None = None
        self._ballast: bytearray | None = bytearray(BALLAST_BYTES)

    def serve(self) -> None:
        """Answer until the connection closes, or a request has been the end of this process."""
        while True:
            self._token, request, flats = self._channel.receive()
            storages = Storages()
            reply = self._guarded(request, flats, storages)
            _flush()
            self._channel.send(self._token, reply, storages.flats if not isinstance(reply, (Threw, Dying)) else ())
            if isinstance(reply, Dying):
                _exit(0)

    def _guarded(self, request: Request, flats: list[Tensor], storages: Storages) -> Reply:
        """The reply; or what kept the kernel from one."""
        try:
            return self._reply(request, flats, storages)
        except SilentLaunchError as error:
            return Dying(how="device", detail=f"a launch failed, and the kernel has not said so: {error}"[:MESSAGE_MAX])
        except BaseException as error:  # noqa: BLE001 - whatever a kernel raises is an answer
            self._ballast = None
            death = devices.death_in(error, self._device)
            if death is not None:
                return Dying(how=death.how, detail=death.detail[:MESSAGE_MAX])
            return Threw(kind=type(error).__name__, message=_message(error))

    def _reply(self, request: Request, flats: list[Tensor], storages: Storages) -> Reply:
        if isinstance(request, Load):
            return self._load(request, flats, storages)
        assert self._kernel is not None
        assert self._caller is not None
        if isinstance(request, Call):
            return self._caller.answer(request, flats, storages)
        assert isinstance(request, Make)
        assert self._kernel.maker is not None
        dtype = None if self._dtype is None else DTYPES[self._dtype]
        return Made(inputs=_tuple(made(self._kernel.maker, request.seed, dtype, request.cuts), storages))

    def _load(self, request: Load, flats: list[Tensor], storages: Storages) -> Loaded:
        self._device, self._dtype = request.device, request.dtype
        devices.ready(request.device, request.memory_bytes)
        self._kernel = load(request, flats, leaf_in(flats))
        self._caller = Caller(self._kernel, request.device, self._fingerprint, self._progress)
        state = self._kernel.state
        return Loaded(
            init=None if self._kernel.init is None else _tuple(self._kernel.init, storages),
            state=_nodes(state.tensors, storages),
            parameters=tuple(state.parameters),
        )

    def _progress(self) -> None:
        self._channel.send(self._token, Progress())


def _tuple(values: tuple[Value, ...], storages: Storages) -> TupleNode:
    node = pack(values, storages)
    assert isinstance(node, TupleNode)
    return node


def _nodes(tensors: Mapping[str, Tensor], storages: Storages) -> dict[str, TensorNode]:
    """Those that can be sent; a sparse one, say, is the kernel's own affair."""
    nodes: dict[str, TensorNode] = {}
    for name, tensor in tensors.items():
        with contextlib.suppress(WireError):
            nodes[name] = tensor_node(tensor.detach(), storages)
    return nodes


def _message(error: BaseException) -> str:
    """An error's text, and where in the kernel's code it comes from."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - an error of the kernel's own making may raise here too
        text = "(its text cannot be had)"
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if f"{os.sep}harness{os.sep}" not in frame.filename
    ]
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{text[:MESSAGE_MAX]}{where}"


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def serve(connection: socket.socket, environment: Mapping[str, str]) -> None:
    """Serve the judge at the other end of ``connection``; ends the process."""
    set_environment(environment)
    faulthandler.enable()
    try:
        Child(Channel(connection, Request)).serve()
    except (ClosedError, WireError):
        _exit(STATUS_CLOSED)
    except BaseException:  # noqa: BLE001 - the harness's own defect, or a kernel's doing to it; either is for the log
        traceback.print_exc()
        _flush()
        _exit(STATUS_DEFECT)
