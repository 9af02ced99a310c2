"""Frames over a socket: a head in msgpack, then the bytes of the storages that it speaks of."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final, Generic, TypeVar

import msgspec
import torch
from torch import Tensor

from amk.contracts.errors import WireError
from amk.contracts.wire import memory_of

MAGIC: Final = b"AMK\x01"
PREFIX: Final = struct.Struct("<4sQ")
HEAD_BYTES_MAX: Final = 1 << 26
TICK_S: Final = 0.1
"""How often a side that waits looks after the other."""

Body = TypeVar("Body")

_empty = torch.empty
_send, _recv_into = socket.socket.sendmsg, socket.socket.recv_into


class Head(msgspec.Struct, Generic[Body], frozen=True, array_like=True):
    """``token`` is of a request and of all that answers it; ``sizes`` are the bytes of each storage."""

    token: bytes
    sizes: tuple[int, ...]
    body: Body


class ClosedError(Exception):
    """The other side has closed, or is gone."""


class Channel(Generic[Body]):
    """One side of a connection.

    Parameters
    ----------
    connection
        A connected stream socket; the channel owns it.
    expects
        The type of the bodies that come in.
    limit_bytes
        What a frame may at most hold.
    """

    def __init__(self, connection: socket.socket, expects: object, *, limit_bytes: int = 1 << 40) -> None:
        self.socket = connection
        self.socket.settimeout(0)
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Head[Body]] = msgspec.msgpack.Decoder(Head[expects])  # type: ignore[valid-type]
        self._limit_bytes = limit_bytes
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(connection, select.POLLIN)
        self._writable.register(connection, select.POLLOUT)

    def send(
        self,
        token: bytes,
        body: object,
        flats: Sequence[Tensor] = (),
        *,
        deadline: float | None = None,
        watch: Callable[[], None] = lambda: None,
    ) -> None:
        """Send one frame.

        Raises
        ------
        TimeoutError, ClosedError
        """
        head = self._encoder.encode(Head(token=token, sizes=tuple(flat.numel() for flat in flats), body=body))
        pending = [memoryview(PREFIX.pack(MAGIC, len(head)) + head)]
        pending += [memory_of(flat) for flat in flats if flat.numel()]
        while pending:
            try:
                sent = _send(self.socket, pending[:64])
            except BlockingIOError:
                _wait(self._writable, deadline, watch)
                continue
            except OSError as error:
                raise ClosedError from error
            while pending and sent >= len(pending[0]):
                sent -= len(pending.pop(0))
            if sent:
                pending[0] = pending[0][sent:]

    def receive(
        self, *, deadline: float | None = None, watch: Callable[[], None] = lambda: None
    ) -> tuple[bytes, Body, list[Tensor]]:
        """(token, body, storages) of the next frame.

        Parameters
        ----------
        deadline
            On ``time.monotonic``; None waits for ever.
        watch
            Called every ``TICK_S`` of waiting; what it raises ends the wait.

        Raises
        ------
        TimeoutError, ClosedError
        WireError
            What came is no frame.
        """
        prefix = bytearray(PREFIX.size)
        self._fill(memoryview(prefix), deadline, watch)
        magic, size = PREFIX.unpack(prefix)
        if magic != MAGIC or size > HEAD_BYTES_MAX:
            raise WireError(what="what is no frame")
        data = bytearray(size)
        self._fill(memoryview(data), deadline, watch)
        try:
            head = self._decoder.decode(data)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError) as error:
            raise WireError(what=f"a frame that does not decode ({error})") from error
        if min(head.sizes, default=0) < 0 or sum(head.sizes) > self._limit_bytes:
            raise WireError(what=f"a frame of {sum(head.sizes)} bytes, more than the {self._limit_bytes} allowed,")
        flats = []
        for nbytes in head.sizes:
            flat = _empty(nbytes, dtype=torch.uint8, device="cpu")
            if nbytes:
                self._fill(memory_of(flat), deadline, watch)
            flats.append(flat)
        return head.token, head.body, flats

    def _fill(self, into: memoryview, deadline: float | None, watch: Callable[[], None]) -> None:
        while into:
            try:
                count = _recv_into(self.socket, into)
            except BlockingIOError:
                _wait(self._readable, deadline, watch)
                continue
            except OSError as error:
                raise ClosedError from error
            if not count:
                raise ClosedError
            into = into[count:]

    def close(self) -> None:
        self.socket.close()


def _wait(poll: select.poll, deadline: float | None, watch: Callable[[], None]) -> None:
    """Return when there is something to do, or after a tick."""
    left = TICK_S if deadline is None else min(TICK_S, deadline - monotonic())
    if left <= 0:
        raise TimeoutError
    if not poll.poll(left * 1000):
        watch()
