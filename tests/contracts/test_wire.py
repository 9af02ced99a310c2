"""What goes between the judge and a kernel arrives as it was, storages and all; what cannot go is named."""

from __future__ import annotations

import math
import socket
import threading
import time

import msgspec
import pytest
import torch
from torch import Tensor

from amk.contracts.errors import WireError
from amk.contracts.harness.channel import MAGIC, PREFIX, Channel, ClosedError, Head
from amk.contracts.outcomes import Value
from amk.contracts.trial import tensors_of
from amk.contracts.wire import DEPTH_MAX, DTYPES, Node, Storages, TensorNode, leaf_in, pack, tensor_nodes, unpack


def through(*values: Value) -> tuple[Value, ...]:
    """``values`` as the other side of a socket has them."""
    near, far = socket.socketpair()
    sender, receiver = Channel[Node](near, Node), Channel[Node](far, Node)
    storages = Storages()
    node = pack(values, storages)
    thread = threading.Thread(target=lambda: sender.send(b"token", node, storages.flats))
    thread.start()
    token, came, flats = receiver.receive(deadline=time.monotonic() + 20)
    thread.join()
    for channel in (sender, receiver):
        channel.close()
    assert token == b"token"
    back = unpack(came, leaf_in(flats))
    assert isinstance(back, tuple)
    return back


def sent(tensor: Tensor) -> Tensor:
    (back,) = through(tensor)
    assert isinstance(back, Tensor)
    return back


def bits(tensor: Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (5, 7)], ids=str)
def test_a_tensor_of_any_dtype_arrives_with_its_bits(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    raw = torch.randint(0, 2 if dtype is torch.bool else 256, (math.prod(shape) * dtype.itemsize,), dtype=torch.uint8)
    tensor = torch.empty(0, dtype=dtype).set_(raw.untyped_storage(), 0, shape, torch.empty(shape).stride())
    back = sent(tensor)
    assert (back.dtype, back.shape, back.stride()) == (tensor.dtype, tensor.shape, tensor.stride())
    assert back.untyped_storage().nbytes() == raw.numel()
    assert torch.equal(torch.empty(0, dtype=torch.uint8).set_(back.untyped_storage()), raw)


def test_the_table_of_dtypes_has_the_usual_ones() -> None:
    assert {"bfloat16", "float8_e4m3fn", "float8_e5m2", "bool", "complex64", "float64", "uint16"} <= set(DTYPES)
    assert not {"qint8", "quint4x2"} & set(DTYPES)


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t.t(),
        lambda t: t[2:, 1:],
        lambda t: t[::2, ::3],
        lambda t: t[1].expand(4, 7),
        lambda t: t.as_strided((3, 3), (1, 1), 5),
        lambda t: t.flatten()[-1],
        lambda t: t[:0],
    ],
)
def test_a_view_arrives_as_a_view_of_its_whole_storage(view: object) -> None:
    base = torch.randn(5, 7)
    tensor = view(base)  # type: ignore[operator]
    back = sent(tensor)
    assert back.stride() == tensor.stride()
    assert back.storage_offset() == tensor.storage_offset()
    assert torch.equal(back, tensor)
    assert back.untyped_storage().nbytes() == base.nbytes
    assert torch.equal(torch.empty(0).set_(back.untyped_storage()).reshape(5, 7), base)


def test_storages_that_are_shared_stay_shared_and_others_do_not() -> None:
    base = torch.arange(12.0)
    left, right, other, nested = through(base[:6], base[3:], base.clone(), {"again": [base.view(torch.int32)]})
    assert isinstance(left, Tensor)
    assert isinstance(right, Tensor)
    left[3] = 99.0
    assert right[0] == 99.0
    assert tensors_of([nested])[0][3] == torch.tensor(99.0).view(torch.int32)
    assert tensors_of([other])[0][3] == 3.0


def test_a_shared_storage_is_sent_once() -> None:
    base = torch.zeros(1000)
    storages = Storages()
    node = pack((base[1:], base[2:], base.clone()), storages)
    assert [leaf.storage for leaf in tensor_nodes(node)] == [0, 0, 1]
    assert [flat.numel() for flat in storages.flats] == [4000, 4000]


def test_containers_and_numbers_arrive_as_they_are() -> None:
    values: tuple[Value, ...] = (1, -(2**63), 2**64 - 1, 2.5, True, None, "text", [1, (2, [])], {"a": (), "b": {}})
    back = through(*values)
    assert back == values
    assert [type(value) for value in back] == [type(value) for value in values]
    assert math.isnan(through(math.nan)[0])  # type: ignore[arg-type]
    assert math.copysign(1, through(-0.0)[0]) == -1  # type: ignore[arg-type]


def test_gradient_wishes_arrive() -> None:
    assert sent(torch.ones(2, requires_grad=True)).requires_grad
    assert sent(torch.ones(2, requires_grad=True)).is_leaf
    assert not sent(torch.ones(2)).requires_grad


def test_conjugates_and_negatives_arrive_as_what_they_are_worth() -> None:
    tensor = torch.randn(3, dtype=torch.complex64)
    assert torch.equal(sent(tensor.conj()), tensor.conj().resolve_conj())
    assert torch.equal(sent(tensor.conj().imag), tensor.conj().imag)


def test_a_large_tensor_arrives_through_a_full_buffer() -> None:
    tensor = torch.randn(1 << 20)
    assert torch.equal(sent(tensor), tensor)


def nested(depth: int) -> Value:
    value: Value = 0
    for _ in range(depth):
        value = [value]
    return value


def endless() -> Value:
    value: list[Value] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (object(), "object"),
        (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
        (torch.float32, "torch.dtype"),
        (lambda: 0, "function"),
        (b"bytes", "bytes"),
        (2j, "complex"),
        (2**64, str(2**64)),
        ({1: 2}, "keys that are no texts"),
        (torch.eye(2).to_sparse(), "sparse"),
        (torch.empty(2, device="meta"), "meta"),
        (nested(DEPTH_MAX + 1), "nested"),
        (endless(), "nested"),
    ],
)
def test_what_cannot_be_sent_is_named(value: Value, named: str) -> None:
    with pytest.raises(WireError, match="cannot be passed between processes") as failure:
        pack((value,), Storages())
    assert named in str(failure.value)


def test_the_deepest_value_arrives() -> None:
    assert through(nested(DEPTH_MAX - 1)) == (nested(DEPTH_MAX - 1),)


# --- frames that are none --------------------------------------------------------------------------------------------


def leaf(**changes: object) -> TensorNode:
    facts = {"storage": 0, "dtype": "float32", "shape": (2, 3), "stride": (3, 1), "offset": 0, "requires_grad": False}
    return TensorNode(**(facts | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "node",
    [
        leaf(storage=1),
        leaf(storage=-1),
        leaf(dtype="float99"),
        leaf(dtype="float64"),
        leaf(shape=(2, 4)),
        leaf(shape=(2,)),
        leaf(shape=(-1, 3)),
        leaf(stride=(1 << 62, 1)),
        leaf(stride=(-3, 1)),
        leaf(shape=(1, 3), stride=(1 << 63, 1)),
        leaf(shape=(0, 1 << 63), stride=(1, 1)),
        leaf(offset=1),
        leaf(offset=-1),
    ],
)
def test_a_tensor_that_does_not_lie_in_its_storage_is_refused(node: TensorNode) -> None:
    storage = torch.zeros(24, dtype=torch.uint8)
    assert leaf_in([storage])(leaf()).shape == (2, 3)
    with pytest.raises(WireError):
        leaf_in([storage])(node)


def received(data: bytes, *, limit_bytes: int = 1 << 20) -> object:
    near, far = socket.socketpair()
    with near:
        near.sendall(data)
        near.shutdown(socket.SHUT_WR)
        channel = Channel[Node](far, Node, limit_bytes=limit_bytes)
        try:
            return channel.receive(deadline=time.monotonic() + 5)
        finally:
            channel.close()


def frame(head: bytes, rest: bytes = b"") -> bytes:
    return PREFIX.pack(MAGIC, len(head)) + head + rest


def test_a_frame_is_read_back() -> None:
    head = msgspec.msgpack.encode(Head(token=b"t", sizes=(4,), body=None))
    token, body, flats = received(frame(head, b"abcd"))  # type: ignore[misc]
    assert (token, body, bytes(flats[0].numpy())) == (b"t", None, b"abcd")


@pytest.mark.parametrize(
    "data",
    [
        b"garbage that is long enough for a prefix",
        PREFIX.pack(MAGIC, 1 << 60),
        frame(b"\xc1"),
        frame(b"\x93" * 100_000),
        frame(msgspec.msgpack.encode({"token": b"", "sizes": (), "body": None})),
        frame(msgspec.msgpack.encode((b"t", (-1,), None))),
        frame(msgspec.msgpack.encode((b"t", (1 << 40,), None))),
        frame(msgspec.msgpack.encode((b"t", (), ["x", 1]))),
        frame(msgspec.msgpack.encode((b"t", (), b"bytes"))),
    ],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        received(data)


@pytest.mark.parametrize("data", [b"", b"AM", PREFIX.pack(MAGIC, 10) + b"short"])
def test_a_frame_that_breaks_off_is_a_closed_connection(data: bytes) -> None:
    with pytest.raises(ClosedError):
        received(data)


def test_waiting_ends_with_the_deadline_and_looks_around_meanwhile() -> None:
    near, far = socket.socketpair()
    looks: list[float] = []
    with near:
        channel = Channel[Node](far, Node)
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            channel.receive(deadline=start + 0.35, watch=lambda: looks.append(time.monotonic()))
        channel.close()
    assert 0.3 < time.monotonic() - start < 10
    assert looks


def test_sending_to_one_who_does_not_read_ends_with_the_deadline() -> None:
    near, far = socket.socketpair()
    with far:
        channel = Channel[Node](near, Node)
        with pytest.raises(TimeoutError):
            channel.send(b"", None, [torch.zeros(1 << 24, dtype=torch.uint8)], deadline=time.monotonic() + 0.2)
        channel.close()
