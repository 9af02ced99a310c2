"""Schedule -> the words that a kernel reads: every task with the addresses and strides of its buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from amk.codegen import abi
from amk.codegen.config import KernelConfig
from amk.codegen.shapes import shape_of
from amk.ir.buffers import ITEM_BYTES, Buffer, Operand, first_epoch
from amk.ir.layout import TILE_ROWS, stored_shape
from amk.ir.schedule import Schedule, Task, Wait
from amk.ir.tasks import (
    AddNorm,
    AddResidual,
    Argmax,
    Attention,
    Begin,
    GatedMul,
    Gemv,
    HeadNorm,
    LayerNorm,
    MergeSplits,
    Norm,
    Sample,
    Store,
)

Fields = dict[str, float | tuple[int, ...]]

TAGGED_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """``tasks`` are the queues one after another; worker w's are ``[begin[w], begin[w + 1])``.

    ``names`` are the tasks' ids by the ``number`` that an error reports.
    """

    tasks: bytes
    begin: tuple[int, ...]
    names: tuple[str, ...]


def encode(schedule: Schedule, address: Mapping[str, int], config: KernelConfig) -> Encoded:
    """Encode every queue of ``schedule``.

    Parameters
    ----------
    address
        Device address of each buffer.
    config
        Of the kernel that is to run it.

    ``supported.check`` has passed: waits and signals fit, pieces begin on whole tiles, streams share one gate.
    """
    encoder = _Encoder(schedule, address, config)
    parts: list[bytes] = []
    begin = [0]
    names: list[str] = []
    for queue in schedule.queues:
        for name in queue.tasks:
            parts.append(encoder.task(schedule.task[name], len(names)))
            names.append(name)
        begin.append(len(names))
    return Encoded(tasks=b"".join(parts), begin=tuple(begin), names=tuple(names))


def stored_bytes(schedule: Schedule, name: str, *, head_stride: int) -> int:
    """Bytes of a buffer on the device: padded tiles for weights, padded rows for caches."""
    buffer = schedule.buffer[name]
    size = word_bytes(buffer)
    for extent in (*buffer.shape[:-1], head_stride) if buffer.kind == "kv" else stored_shape(buffer):
        size *= extent
    return size


def word_bytes(buffer: Buffer) -> int:
    """Bytes from one element to the next: a tagged one is a word of a float and its epoch."""
    return TAGGED_BYTES if buffer.tagged else ITEM_BYTES[buffer.dtype]


class _Encoder:
    def __init__(self, schedule: Schedule, address: Mapping[str, int], config: KernelConfig) -> None:
        self.schedule = schedule
        self.address = address
        self.head_stride = config.head_stride
        self.shape = {shape: number for number, shape in enumerate(config.gemvs)}
        self.counter = {counter.id: number for number, counter in enumerate(schedule.counters)}

    def task(self, task: Task, number: int) -> bytes:
        kind, fields = self.kind(task)
        return abi.TASKS[kind].pack(**self.head(task, abi.OPCODES[kind], number), **fields)

    def kind(self, task: Task) -> tuple[str, Fields]:
        match task.op:
            case Begin(stop=stop):
                return "begin", {"stop": self.at(stop)}
            case Gemv() as op:
                return "gemv", self.gemv(op)
            case Attention() as op:
                ((gate,),) = {stream.gate for stream in task.streams}
                return "attention", self.attention(op, self.wait(gate))
            case Sample() as op:
                return "sample", self.sample(op)
            case AddNorm() as op:
                return "add_norm", self.add_norm(op)

    def head(self, task: Task, opcode: int, number: int) -> Fields:
        waits = [self.wait(wait) for wait in task.waits]
        waits += [(0, 0, 0)] * (abi.WAITS_MAX - len(waits))
        signals = [self.counter[name] for name in task.signals]
        return {
            "opcode": opcode,
            "number": number,
            "wait_count": len(task.waits),
            "wait_counter": tuple(counter for counter, _, _ in waits),
            "wait_threshold": tuple(threshold for _, threshold, _ in waits),
            "wait_each": tuple(each for _, _, each in waits),
            "signal_count": len(signals),
            "signals": tuple(signals + [0] * (abi.SIGNALS_MAX - len(signals))),
        }

    def wait(self, wait: Wait) -> tuple[int, int, int]:
        """(counter, threshold, signals a step)."""
        return self.counter[wait.counter], wait.threshold, self.schedule.signals_per_step[wait.counter]

    def epochs(self, name: str, operand: Operand) -> Fields:
        """Of the words of an operand: the first epoch, and how many a step has; zeros where it is plain."""
        buffer = self.schedule.buffer[operand.buffer]
        if not buffer.tagged:
            return {f"{name}_epoch": 0, f"{name}_epochs": 0}
        return {f"{name}_epoch": first_epoch(operand, buffer.versions), f"{name}_epochs": buffer.versions}

    def at(self, operand: Operand, *index: int) -> int:
        """Address of an element of a buffer that is not packed, given its leading indices."""
        buffer = self.schedule.buffer[operand.buffer]
        offset = 0
        for axis, size in enumerate(buffer.shape):
            offset = offset * size + (index[axis] if axis < len(index) else 0)
        return self.address[buffer.id] + offset * word_bytes(buffer)

    def columns(self, operand: Operand) -> int:
        """Elements from one row to the next."""
        return self.schedule.buffer[operand.buffer].shape[-1]

    def gemv(self, op: Gemv) -> Fields:
        weight = self.schedule.buffer[op.weight]
        low, high = op.rows
        _, column_tiles, tile_rows, tile_columns = stored_shape(weight)
        tile_bytes = column_tiles * tile_rows * tile_columns * ITEM_BYTES[weight.dtype]
        fields: Fields = {
            "x": self.at(op.x),
            "stats": 0,
            "gain": 0,
            "shift": 0,
            "bias": 0 if op.bias is None else self.address[op.bias],
            "scales": 0 if op.scales is None else self.address[op.scales],
            "weight": self.address[op.weight] + low // TILE_ROWS * tile_bytes,
            "residual": 0,
            "best_value": 0,
            "best_index": 0,
            "prompt_length": 0,
            "k": op.k,
            "row_begin": low,
            "row_end": high,
            "x_stride": self.columns(op.x),
            "out_stride": 0,
            "splits": 1,
            "split_stride": 0,
            "heads": 1,
            "shape": self.shape[shape_of(op, self.schedule)],
            "eps": 0.0,
            "scale": 1.0,
            "softcap": 0.0,
            "residual_epoch": 0,
            "residual_epochs": 0,
            "out_epoch": 0,
            "out_epochs": 0,
            **self.epochs("x", op.x),
        }
        match op.prologue:
            case Norm(gain=gain, eps=eps):
                fields |= {"gain": self.address[gain], "eps": eps}
            case LayerNorm(gain=gain, eps=eps, bias=shift):
                fields |= {"gain": self.address[gain], "eps": eps}
                fields["shift"] = 0 if shift is None else self.address[shift]
            case MergeSplits(stats=stats, splits=splits, heads=heads):
                _, rows, width = self.schedule.buffer[op.x.buffer].shape
                fields |= {
                    "stats": self.at(stats),
                    "splits": splits,
                    "split_stride": rows * width,
                    "heads": heads,
                }
            case None:
                pass
        return fields | self.epilogue(op)

    def epilogue(self, op: Gemv) -> Fields:
        match op.epilogue:
            case Store(out=out):
                return self.stored(out)
            case GatedMul(out=out):
                return self.stored(out)
            case AddResidual(residual=residual, out=out, scale=scale):
                beside = {"residual": self.at(residual), "scale": scale, **self.epochs("residual", residual)}
                return self.stored(out) | beside
            case Argmax() as argmax:
                return {
                    "out": self.at(argmax.logits),
                    "best_value": self.at(argmax.value, argmax.slot),
                    "best_index": self.at(argmax.index, argmax.slot),
                    "prompt_length": self.address[argmax.prompt_length],
                    "scale": argmax.scale,
                    "softcap": argmax.softcap or 0.0,
                }

    def stored(self, out: Operand) -> Fields:
        return {
            "out": self.at(out),
            "out_stride": self.columns(out),
            **self.epochs("out", out),
        }

    def attention(self, op: Attention, gate: tuple[int, int, int]) -> Fields:
        counter, threshold, each = gate
        return {
            "qkv": self.at(op.qkv),
            "k_cache": self.head_of(op.k_cache, op.kv_head),
            "v_cache": self.head_of(op.v_cache, op.kv_head),
            "rope": 0 if op.rope is None else self.address[op.rope],
            "q_gain": self.gain(op.q_norm, op.q_columns[0]),
            "k_gain": self.gain(op.k_norm, op.kv_head * op.head_dim),
            "out": self.at(op.out, op.split) if op.stats else self.at(op.out),
            "stats": self.at(op.stats, op.split) if op.stats else 0,
            "qkv_stride": self.columns(op.qkv),
            "q_column": op.q_columns[0],
            "k_column": op.k_columns[0],
            "v_column": op.v_columns[0],
            "q_head": op.q_heads[0],
            "heads": op.heads,
            "split": op.split,
            "splits": op.splits,
            "kv_heads": op.kv_heads,
            "rotary_dim": op.rotary_dim,
            "window": abi.NO_WINDOW if op.window is None else op.window,
            "scale": op.scale,
            "softcap": op.softcap or 0.0,
            "q_eps": op.q_norm.eps if op.q_norm else 0.0,
            "k_eps": op.k_norm.eps if op.k_norm else 0.0,
            "gate_counter": counter,
            "gate_threshold": threshold,
            "gate_each": each,
            **self.epochs("qkv", op.qkv),
        }

    def gain(self, norm: HeadNorm | None, column: int) -> int:
        """Address of the gain of a task's first head, which is ``column`` columns into its row."""
        if norm is None:
            return 0
        return self.address[norm.gain] + (4 * column if norm.over == "row" else 0)

    def add_norm(self, op: AddNorm) -> Fields:
        low, high = op.columns
        return {
            "x": self.at(op.x),
            "gain": self.address[op.gain],
            "residual": self.at(op.residual),
            "out": self.at(op.out),
            "k": op.k,
            "column_begin": low,
            "column_end": high,
            "x_stride": self.columns(op.x),
            "out_stride": self.columns(op.out),
            "eps": op.eps,
            "scale": op.scale,
        }

    def head_of(self, cache: str, kv_head: int) -> int:
        """Address of one head's rows in a cache."""
        buffer = self.schedule.buffer[cache]
        return self.address[cache] + kv_head * buffer.shape[1] * self.head_stride * ITEM_BYTES[buffer.dtype]

    def sample(self, op: Sample) -> Fields:
        return {
            "best_value": self.at(op.value),
            "best_index": self.at(op.index),
            "prompt": self.address[op.prompt],
            "prompt_length": self.address[op.prompt_length],
            "eos": self.address[op.eos],
            "table": self.address[op.table],
            "scales": 0 if op.scales is None else self.address[op.scales],
            "token": self.at(op.token),
            "stop": self.at(op.stop),
            "next_hidden": self.at(op.next_hidden),
            "slots": op.slots,
            "eos_slots": self.schedule.buffer[op.eos].shape[0],
            "hidden": op.hidden,
            "tiled": int(self.schedule.buffer[op.table].layout != "plain"),
            "scale": op.scale,
            "group": op.group or op.hidden,
            **self.epochs("hidden", op.next_hidden),
        }
