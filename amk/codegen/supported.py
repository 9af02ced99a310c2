"""What kernels are generated for. A proved schedule outside of it is refused by name, never run as something else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from amk.codegen.abi import SIGNALS_MAX, WAITS_MAX
from amk.codegen.errors import NotGeneratableError
from amk.ir.buffers import Dtype
from amk.ir.layout import LAYOUT_COLUMNS, TILE_ROWS
from amk.ir.schedule import Schedule, Task
from amk.ir.tasks import AddNorm, AddResidual, Argmax, Attention, Gemv, LayerNorm, MergeSplits, Sample

ARCHS: Final = ("sm_80", "sm_90", "sm_120")

CONSUMER_WARPS_MAX: Final = 31
"""A block has 32 warps, and one of them is the producer."""

DRIFT: Final = 1
"""Tasks by which the kernel's warps may be apart: those that have no share in a task's end go on to the next."""

STAGE_UNIT: Final = 512
"""Bytes of a block of packed weights, of which a stage holds a whole number."""

KV_DTYPES: Final[tuple[Dtype, ...]] = ("f32", "bf16")


@dataclass(frozen=True, slots=True, order=True)
class HeadShape:
    """What the attention tasks of a kernel have in common."""

    dim: int
    group: int
    kv_dtype: Dtype
    norm: Literal["none", "head", "row"]
    capped: bool
    tagged_qkv: bool


def check(schedule: Schedule) -> None:
    """Raise NotGeneratableError for the first thing about ``schedule`` that no kernel is generated for."""
    for feature, fix in _unsupported(schedule):
        raise NotGeneratableError(feature=feature, fix=fix)


def head_shape(schedule: Schedule) -> HeadShape:
    """The one shape of the schedule's attention; NotGeneratableError if there are none or several."""
    shapes = {
        HeadShape(
            dim=op.head_dim,
            group=op.heads // op.kv_heads,
            kv_dtype=schedule.buffer[op.k_cache].dtype,
            norm="none" if op.q_norm is None else op.q_norm.over,
            capped=op.softcap is not None,
            tagged_qkv=schedule.buffer[op.qkv.buffer].tagged,
        )
        for op in (task.op for task in schedule.tasks)
        if isinstance(op, Attention)
    }
    if len(shapes) != 1:
        raise NotGeneratableError(feature=f"attention of {len(shapes)} shapes", fix="use layers of one head shape")
    return shapes.pop()


def _unsupported(schedule: Schedule) -> Iterator[tuple[str, str]]:
    target = schedule.target
    if target.arch not in (*ARCHS, "host"):
        yield f"arch {target.arch}", f"compile for one of {', '.join(ARCHS)}"
    if schedule.devices != 1 or schedule.sequences != 1:
        yield f"{schedule.devices} devices and {schedule.sequences} sequences", "use one of each"
    if target.consumer_warps > CONSUMER_WARPS_MAX:
        yield f"{target.consumer_warps} consumer warps", f"use a target with at most {CONSUMER_WARPS_MAX}"
    if target.drift < DRIFT:
        yield f"a drift of {target.drift}", f"prove it for a target whose warps drift by {DRIFT}"
    if target.stage_bytes % STAGE_UNIT:
        yield f"a stage of {target.stage_bytes} bytes", f"use a target whose stages are a multiple of {STAGE_UNIT}"
    for counter in schedule.counters:
        if counter.scope != "gpu":
            yield f"counter {counter.id} of scope {counter.scope}", "use counters of scope gpu"
    for buffer in schedule.buffers:
        if buffer.tagged and (buffer.fenced or buffer.dtype != "f32"):
            yield f"buffer {buffer.id}, whose tagged words are fenced or not f32", "use plain relaxed words of f32"
    for task in schedule.tasks:
        yield from _unsupported_task(task, schedule)


def _unsupported_task(task: Task, schedule: Schedule) -> Iterator[tuple[str, str]]:
    lower = "lower the model with the passes of this version"
    if len(task.waits) > WAITS_MAX or len(task.signals) > SIGNALS_MAX:
        yield f"{task.id}, with {len(task.waits)} waits and {len(task.signals)} signals", lower
    if own := _read_and_written(task):
        yield f"{task.id}, which reads the buffer {own} while it writes it", lower
    if tagged := _tagged_elsewhere(task, schedule):
        yield f"{task.id}, with the buffer {tagged} tagged", "use the tile pass of this version"
    match task.op:
        case Gemv() as op:
            yield from _unsupported_gemv(task.id, op, schedule)
        case Attention(k_cache=k, v_cache=v, q_norm=q_norm, k_norm=k_norm):
            dtypes = {schedule.buffer[name].dtype for name in (k, v)}
            gates = {stream.gate for stream in task.streams}
            if len(dtypes) != 1 or not dtypes <= set(KV_DTYPES):
                yield f"{task.id}, with a cache of {', '.join(sorted(dtypes))}", f"use one of {', '.join(KV_DTYPES)}"
            overs = {None if norm is None else norm.over for norm in (q_norm, k_norm)}
            if len(overs) != 1:
                yield f"{task.id}, whose queries and keys are not normed alike", lower
            if len(gates) != 1 or len(gates.pop()) != 1:
                yield f"{task.id}, whose streams are not gated by one wait", lower
        case Sample(table=table, scales=scales) if schedule.buffer[table].dtype != ("i8" if scales else "bf16"):
            yield f"{task.id}, whose table {table} is {schedule.buffer[table].dtype}", lower
        case _:
            pass


def _unsupported_gemv(name: str, op: Gemv, schedule: Schedule) -> Iterator[tuple[str, str]]:
    lower = "lower the model with the passes of this version"
    if op.rows[0] % TILE_ROWS:
        yield f"{name}, whose rows begin inside a tile", lower
    packed = ("bf16", "gemv8x32") if op.scales is None else ("i8", "gemv8x64")
    stored = schedule.buffer[op.weight]
    if (stored.dtype, stored.layout) != packed:
        yield f"{name}, whose weight {op.weight} is not packed {packed[0]}", lower
    if (op.x_rows == "last") != isinstance(op.epilogue, Argmax):
        yield f"{name}, which is of the step's last row and no head, or the other way round", lower
    if op.group % LAYOUT_COLUMNS["gemv8x64"]:
        yield f"{name}, with a scale for each {op.group} columns", "use groups of 64 or 128, or none"


def _read_and_written(task: Task) -> str:
    """A buffer that the task writes and reads otherwise than as a residual; empty if there is none.

    V2 of the validator: a task's threads store while others of it still read. A residual is read where it is written,
    by the thread that writes it.
    """
    read = [access.region.buffer for access in task.reads]
    match task.op:
        case Gemv(epilogue=AddResidual(residual=residual)) | AddNorm(residual=residual):
            read.remove(residual.buffer)
        case _:
            pass
    return next((access.region.buffer for access in task.writes if access.region.buffer in read), "")


def _tagged_elsewhere(task: Task, schedule: Schedule) -> str:
    """A buffer whose words are tagged, or not, otherwise than the kernel has it; empty if there is none."""
    tagged = {buffer.id for buffer in schedule.buffers if buffer.tagged}
    touched = [read.region.buffer for read in task.reads] + [write.region.buffer for write in task.writes]
    known: set[str] = set()
    match task.op:
        case Gemv(x=x, prologue=prologue, epilogue=epilogue):
            if not isinstance(prologue, LayerNorm | MergeSplits):
                known.add(x.buffer)
            if not isinstance(epilogue, Argmax):
                known.add(epilogue.out.buffer)
            if isinstance(epilogue, AddResidual):
                if (epilogue.residual.buffer in tagged) != (epilogue.out.buffer in tagged):
                    return epilogue.residual.buffer
                known.add(epilogue.residual.buffer)
        case Attention(qkv=qkv):
            known.add(qkv.buffer)
        case Sample(next_hidden=hidden):
            known.add(hidden.buffer)
        case _:
            pass
    return next((name for name in touched if name in tagged and name not in known), "")


def hidden_tagged(schedule: Schedule) -> bool:
    """Whether the residual stream is tagged, which the sampler begins."""
    sampler = next(task.op for task in schedule.tasks if isinstance(task.op, Sample))
    return schedule.buffer[sampler.next_hidden.buffer].tagged
