"""The GEMV shapes of a schedule: what its tasks have in common by hop, which the kernel knows when it is compiled."""

from __future__ import annotations

from msgspec.structs import astuple

from amk.codegen import abi
from amk.ir.record import Record
from amk.ir.schedule import Schedule
from amk.ir.tasks import AddResidual, Argmax, GatedMul, Gemv, LayerNorm, MergeSplits, Norm, Store

_VECTOR = 4
"""Columns that a thread reads in one access."""


class GemvShape(Record):
    """One shape: the kernel holds one copy of the GEMV for each.

    Attributes
    ----------
    columns
        Of the weight, and of x.
    prologue, epilogue, activation
        Numbers of ``abi.PROLOGUES``, ``abi.EPILOGUES`` and ``abi.ACTIVATIONS``.
    bias
        Whether there is one.
    last_row_only
        Whether only the step's last row is multiplied.
    aligned
        Whether any four columns of x from a multiple of four on lie in one row, and in one head, aligned.
    tagged_x, tagged_out
        Whether words of x, and of the output and the residual, carry epochs.
    quantized
        Whether the weight is integers.
    group_columns
        Columns of it that share a scale; 0 for all.
    """

    columns: int
    prologue: int
    epilogue: int
    activation: int
    bias: bool
    last_row_only: bool
    aligned: bool
    tagged_x: bool
    tagged_out: bool
    quantized: bool
    group_columns: int


def gemv_shapes(schedule: Schedule) -> tuple[GemvShape, ...]:
    """Every shape of the schedule's tasks, in one order however they are scheduled."""
    found = {shape_of(task.op, schedule) for task in schedule.tasks if isinstance(task.op, Gemv)}
    return tuple(sorted(found, key=astuple))


def shape_of(op: Gemv, schedule: Schedule) -> GemvShape:
    """The shape of one task."""
    row = schedule.buffer[op.x.buffer].shape[-1]
    heads = op.prologue.heads if isinstance(op.prologue, MergeSplits) else 1
    return GemvShape(
        columns=op.k,
        prologue=abi.PROLOGUES[_prologue(op)],
        epilogue=abi.EPILOGUES[_epilogue(op)],
        activation=abi.ACTIVATIONS[op.epilogue.activation] if isinstance(op.epilogue, GatedMul) else 0,
        bias=op.bias is not None,
        last_row_only=op.x_rows == "last",
        aligned=all(width % _VECTOR == 0 for width in (op.k, row, row // heads)),
        tagged_x=schedule.buffer[op.x.buffer].tagged,
        tagged_out=not isinstance(op.epilogue, Argmax) and schedule.buffer[op.epilogue.out.buffer].tagged,
        quantized=op.scales is not None,
        group_columns=op.group,
    )


def _prologue(op: Gemv) -> str:
    match op.prologue:
        case None:
            return "none"
        case Norm():
            return "norm"
        case LayerNorm():
            return "layer_norm"
        case MergeSplits():
            return "merge_splits"


def _epilogue(op: Gemv) -> str:
    match op.epilogue:
        case Store():
            return "store"
        case AddResidual():
            return "add_residual"
        case GatedMul():
            return "gated_mul"
        case Argmax():
            return "argmax"
