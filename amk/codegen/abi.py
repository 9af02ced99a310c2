"""What the compiler and the kernel agree on: opcodes, the encoding of a task, the parameters of a launch, limits.

Written once, here. The CUDA side is generated from it (``header``), the host side packs with it (``TASKS[...].pack``).
A task is ``TASK_BYTES`` long whatever its kind, so a queue is an array and the next task's place is known.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Final, Literal

CType = Literal["u32", "i32", "f32", "u64"]

_CODES: Final[dict[CType, str]] = {"u32": "I", "i32": "i", "f32": "f", "u64": "Q"}
_C_NAMES: Final[dict[CType, str]] = {"u32": "u32", "i32": "int", "f32": "float", "u64": "u64"}

TASK_BYTES: Final = 256
TASK_ALIGN: Final = 16
"""What an asynchronous copy asks of both its ends."""

WAITS_MAX: Final = 4
SIGNALS_MAX: Final = 4
COUNTER_STRIDE: Final = 32
"""Words from one counter to the next: each lies on a 128-byte line of its own."""

Value = float | tuple[float, ...]
"""Of a field: a number, or as many as its ``count``."""


@dataclass(frozen=True, slots=True)
class Field:
    """A member of a struct; ``count`` makes it an array."""

    name: str
    type: CType
    count: int = 1

    @property
    def format(self) -> str:
        """Its ``struct`` format."""
        return f"{self.count}{_CODES[self.type]}"


@dataclass(frozen=True, slots=True)
class Struct:
    """A C struct of 32- and 64-bit members, laid out as C does.

    Attributes
    ----------
    name
        In the header.
    fields
        Its members, in order.
    stride
        Bytes from one to the next in an array of them, if more than its own; 0 for its own.
    """

    name: str
    fields: tuple[Field, ...]
    stride: int = 0

    def __post_init__(self) -> None:
        if 0 < self.stride < self.size:
            raise ValueError(f"{self.name} takes {self.size} bytes, more than {self.stride}")

    @property
    def align(self) -> int:
        """Its alignment in bytes."""
        return TASK_ALIGN if self.stride else 8

    @property
    def format(self) -> str:
        """Its ``struct`` format: native alignment is C's, and ``0Q`` pads the end to 8."""
        return "@" + "".join(field.format for field in self.fields) + "0Q"

    @property
    def size(self) -> int:
        """``sizeof``: its members, padded to its alignment."""
        return -(-struct.calcsize(self.format) // self.align) * self.align

    @property
    def offsets(self) -> dict[str, int]:
        """``offsetof`` of each member."""
        found, before = {}, "@"
        for field in self.fields:
            found[field.name] = struct.calcsize(f"{before}0{_CODES[field.type]}")
            before += field.format
        return found

    def pack(self, **values: Value) -> bytes:
        """Its bytes, zeros behind them up to its stride.

        Raises
        ------
        TypeError
            A field is missing, unknown, or has another number of values than it takes.
        struct.error
            A value does not fit its field.
        """
        names = {field.name for field in self.fields}
        if names != values.keys():
            missing, unknown = sorted(names - values.keys()), sorted(values.keys() - names)
            raise TypeError(f"{self.name}: missing {missing}, unknown {unknown}")
        flat: list[float] = []
        for field in self.fields:
            value = values[field.name]
            items = value if isinstance(value, tuple) else (value,)
            if len(items) != field.count:
                raise TypeError(f"{self.name}.{field.name} takes {field.count} values, not {len(items)}")
            flat += items
        return struct.pack(self.format, *flat).ljust(self.stride or self.size, b"\0")

    def unpack(self, data: bytes | bytearray | memoryview) -> dict[str, Any]:
        """Its fields out of at least ``size`` bytes, an array as a tuple: the inverse of ``pack``."""
        flat = struct.unpack_from(self.format, data)
        found: dict[str, Any] = {}
        at = 0
        for field in self.fields:
            found[field.name] = flat[at] if field.count == 1 else flat[at : at + field.count]
            at += field.count
        return found

    def declaration(self) -> str:
        """Its C declaration, and a check that the compiler lays it out as ``pack`` does."""
        members = "".join(
            f"  {_C_NAMES[f.type]} {f.name}{f'[{f.count}]' if f.count > 1 else ''};\n" for f in self.fields
        )
        check = f"static_assert(sizeof({self.name}) == {self.size});\n"
        return f"struct alignas({self.align}) {self.name} {{\n{members}}};\n{check}"


OPCODES: Final = {"begin": 0, "gemv": 1, "attention": 2, "sample": 3, "add_norm": 4}
PROLOGUES: Final = {"none": 0, "norm": 1, "merge_splits": 2, "layer_norm": 3}
EPILOGUES: Final = {"store": 0, "add_residual": 1, "gated_mul": 2, "argmax": 3}
ACTIVATIONS: Final = {"silu": 0, "gelu": 1, "gelu_tanh": 2}
HEAD_NORMS: Final = {"none": 0, "head": 1, "row": 2}
NO_WINDOW: Final = 0x7FFFFFFF
"""Wider than any context."""

_HEAD: Final = (
    Field("opcode", "u32"),
    Field("number", "u32"),
    Field("wait_count", "u32"),
    Field("wait_counter", "u32", WAITS_MAX),
    Field("wait_threshold", "i32", WAITS_MAX),
    Field("wait_each", "u32", WAITS_MAX),
    Field("signal_count", "u32"),
    Field("signals", "u32", SIGNALS_MAX),
)

HEAD: Final = Struct("TaskHead", _HEAD, TASK_BYTES)


def _task(name: str, *fields: Field) -> Struct:
    return Struct(name, (*_HEAD, *fields), TASK_BYTES)


# ``x_epoch`` and its like are the epoch that the words carry in step 0 of the first launch, ``x_epochs`` what each step
# adds to it.
TASKS: Final = {
    "begin": _task("BeginTask", Field("stop", "u64")),
    "gemv": _task(
        "GemvTask",
        Field("x", "u64"),
        Field("stats", "u64"),
        Field("gain", "u64"),
        Field("shift", "u64"),
        Field("weight", "u64"),
        Field("bias", "u64"),
        Field("scales", "u64"),
        Field("out", "u64"),
        Field("residual", "u64"),
        Field("best_value", "u64"),
        Field("best_index", "u64"),
        Field("prompt_length", "u64"),
        Field("k", "u32"),
        Field("row_begin", "u32"),
        Field("row_end", "u32"),
        Field("x_stride", "u32"),
        Field("out_stride", "u32"),
        Field("splits", "u32"),
        Field("split_stride", "u32"),
        Field("heads", "u32"),
        Field("shape", "u32"),
        Field("eps", "f32"),
        Field("scale", "f32"),
        Field("softcap", "f32"),
        Field("x_epoch", "i32"),
        Field("x_epochs", "u32"),
        Field("residual_epoch", "i32"),
        Field("residual_epochs", "u32"),
        Field("out_epoch", "i32"),
        Field("out_epochs", "u32"),
    ),
    "attention": _task(
        "AttentionTask",
        Field("qkv", "u64"),
        Field("k_cache", "u64"),
        Field("v_cache", "u64"),
        Field("rope", "u64"),
        Field("q_gain", "u64"),
        Field("k_gain", "u64"),
        Field("out", "u64"),
        Field("stats", "u64"),
        Field("qkv_stride", "u32"),
        Field("q_column", "u32"),
        Field("k_column", "u32"),
        Field("v_column", "u32"),
        Field("q_head", "u32"),
        Field("heads", "u32"),
        Field("split", "u32"),
        Field("splits", "u32"),
        Field("kv_heads", "u32"),
        Field("rotary_dim", "u32"),
        Field("window", "u32"),
        Field("scale", "f32"),
        Field("softcap", "f32"),
        Field("q_eps", "f32"),
        Field("k_eps", "f32"),
        Field("gate_counter", "u32"),
        Field("gate_threshold", "i32"),
        Field("gate_each", "u32"),
        Field("qkv_epoch", "i32"),
        Field("qkv_epochs", "u32"),
    ),
    "sample": _task(
        "SampleTask",
        Field("best_value", "u64"),
        Field("best_index", "u64"),
        Field("prompt", "u64"),
        Field("prompt_length", "u64"),
        Field("eos", "u64"),
        Field("table", "u64"),
        Field("scales", "u64"),
        Field("token", "u64"),
        Field("stop", "u64"),
        Field("next_hidden", "u64"),
        Field("slots", "u32"),
        Field("eos_slots", "u32"),
        Field("hidden", "u32"),
        Field("tiled", "u32"),
        Field("group", "u32"),
        Field("scale", "f32"),
        Field("hidden_epoch", "i32"),
        Field("hidden_epochs", "u32"),
    ),
    "add_norm": _task(
        "AddNormTask",
        Field("x", "u64"),
        Field("gain", "u64"),
        Field("residual", "u64"),
        Field("out", "u64"),
        Field("k", "u32"),
        Field("column_begin", "u32"),
        Field("column_end", "u32"),
        Field("x_stride", "u32"),
        Field("out_stride", "u32"),
        Field("eps", "f32"),
        Field("scale", "f32"),
    ),
}

PARAMS: Final = Struct(
    "Params",
    (
        Field("tasks", "u64"),
        Field("queue_begin", "u64"),
        Field("counters", "u64"),
        Field("abort", "u64"),
        Field("status", "u64"),
        Field("reports", "u64"),
        Field("watchdog_clocks", "u64"),
        Field("clocks", "u64"),
        Field("times", "u64"),
        Field("tasks_total", "u32"),
        Field("steps", "u32"),
        Field("steps_done", "u32"),
        Field("pos", "u32"),
        Field("tokens", "u32"),
    ),
)
"""Argument of the kernel. ``steps_done`` are the steps of earlier launches, modulo 2^32. ``clocks`` and ``times`` are
where a stamped kernel writes, for each step the times of ``tasks_total`` tasks."""

CLOCKS: Final = Struct("Clocks", (Field("shared", "u64"), Field("own", "u64")))
"""Two a worker, at the begin and the end of a launch: nanoseconds of the clock that all share, ticks of its own."""

TIMES: Final = Struct(
    "Times",
    (
        Field("taken", "u64"),
        Field("ready", "u64"),
        Field("met", "u64"),
        Field("done", "u64"),
        Field("starved", "u64"),
        Field("waiting", "u64"),
    ),
)
"""Of a task, in ticks of its worker's clock: when its descriptor was in hand, its waits were over, all warps had met
for the last time, and it was published; how long its first warp waited for the stream, and since when the last time."""

STATUS: Final = Struct("Status", (Field("steps", "u32"), Field("cancel", "u32")))
"""Pinned host memory: the steps done, which the host reads while a launch runs, and the cancel flag that it writes."""

REPORT: Final = Struct(
    "Report",
    (
        Field("waiting", "u32"),
        Field("task", "u32"),
        Field("step", "u32"),
        Field("counter", "u32"),
        Field("value", "u32"),
        Field("threshold", "u32"),
    ),
)
"""Pinned host memory, two a worker (its consumers', its producer's): the wait at which an aborted launch found it."""

IN_BLOCK: Final = 0xFFFFFFFF
"""``Report.counter`` when the wait that ran out was inside a block."""

IN_WORDS: Final = 0xFFFFFFFE
"""``Report.counter`` when it was for tagged words; ``threshold`` is the epoch that they were to carry."""


def header() -> str:
    """The generated CUDA header."""
    enums = []
    enumerations = {
        "Opcode": OPCODES,
        "Prologue": PROLOGUES,
        "Epilogue": EPILOGUES,
        "Activation": ACTIVATIONS,
        "HeadNorm": HEAD_NORMS,
    }
    for name, members in enumerations.items():
        values = ", ".join(f"k{name}{_camel(member)} = {value}" for member, value in members.items())
        enums.append(f"enum {name} : u32 {{ {values} }};")
    constants = {
        "kTaskBytes": TASK_BYTES,
        "kWaitsMax": WAITS_MAX,
        "kSignalsMax": SIGNALS_MAX,
        "kCounterStride": COUNTER_STRIDE,
    }
    structs = (HEAD, *TASKS.values(), PARAMS, STATUS, REPORT, CLOCKS, TIMES)
    return "\n".join(
        (
            "// Generated from amk/codegen/abi.py; edit that.",
            "#pragma once",
            '#include "prim/thread.cuh"',
            "namespace amk {",
            *(f"constexpr u32 {name} = {value};" for name, value in constants.items()),
            f"constexpr u32 kInBlock = {IN_BLOCK}u;",
            f"constexpr u32 kInWords = {IN_WORDS}u;",
            *enums,
            *(declared.declaration() for declared in structs),
            "}  // namespace amk",
            "",
        )
    )


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))
