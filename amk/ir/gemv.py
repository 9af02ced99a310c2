"""The GEMV task: rows of a weight matrix times the step's rows, with what stands before and behind it fused in."""

from __future__ import annotations

from typing import Literal

from amk.ir.accesses import ALL_ROWS, LAST_ROW, Buffers, Read, TaskKind, Write, read, write
from amk.ir.activation import Activation
from amk.ir.buffers import Operand
from amk.ir.record import Record
from amk.ir.regions import TOKENS, Env, Interval, Region

# --- prologues: how a GEMV makes its input row -----------------------------------------------------------------------


class Norm(Record, tag_field="kind", tag="norm"):
    """x / sqrt(mean(x^2) + eps) * gain, the scale applied after the dot product (it is linear)."""

    gain: str
    eps: float


class LayerNorm(Record, tag_field="kind", tag="layer_norm"):
    """(x - mean(x)) / sqrt(var(x) + eps) * gain + bias, before the dot product: a bias is not linear in the scale."""

    gain: str
    eps: float
    bias: str | None = None


class MergeSplits(Record, tag_field="kind", tag="merge_splits"):
    """x holds S partial attention results and ``stats`` their (maximum, sum) per head; merge them in split order."""

    stats: Operand
    splits: int
    heads: int


Prologue = Norm | LayerNorm | MergeSplits


# --- epilogues: what a GEMV does with its output rows ----------------------------------------------------------------


class Store(Record, tag_field="kind", tag="store"):
    """out[t, n] = y[t, n]."""

    out: Operand


class AddResidual(Record, tag_field="kind", tag="add_residual"):
    """out[t, n] = residual[t, n] + y[t, n] * scale; ``out`` and ``residual`` may be versions of one buffer."""

    residual: Operand
    out: Operand
    scale: float = 1.0


class GatedMul(Record, tag_field="kind", tag="gated_mul"):
    """out[t, n/2] = activation(y[t, n]) * y[t, n+1] for even n: gate and up rows alternate in the weight."""

    out: Operand
    activation: Activation = "silu"


class Argmax(Record, tag_field="kind", tag="argmax"):
    """Logits of the step's last row, and the largest of this task's with the lowest index among equals.

    ``value[slot]`` and ``index[slot]`` receive it. Steps whose next token is still given by the prompt do no work and
    write the neutral element: zero logits, minus infinity, index 0. A logit is y * scale, then
    softcap * tanh(logit / softcap) where there is a cap.
    """

    logits: Operand
    value: Operand
    index: Operand
    slot: int
    prompt_length: str
    scale: float = 1.0
    softcap: float | None = None


Epilogue = Store | AddResidual | GatedMul | Argmax


# --- the kind ---------------------------------------------------------------------------------------------------------


class Gemv(TaskKind, tag="gemv"):
    """Rows ``rows`` of ``weight`` times the input rows: y[t, n] = sum_k x[t, k] * weight[n, k] + bias[n].

    Attributes
    ----------
    x
        [T, K] activations, or [S, T, K] under ``MergeSplits``.
    x_rows
        ``all`` rows of the step, or only the ``last`` (the LM head).
    k
        Columns of x and of the weight.
    weight, rows
        [N, K] weight buffer and the half-open range of its rows.
    bias
        [N] buffer, or None.
    scales, group
        Where the weight is integers, its [N, G] scales: one for each ``group`` columns of a row, or, where that is 0,
        for all of them. A product is weight * scale.
    """

    x: Operand
    k: int
    weight: str
    rows: tuple[int, int]
    epilogue: Epilogue
    prologue: Prologue | None = None
    x_rows: Literal["all", "last"] = "all"
    bias: str | None = None
    scales: str | None = None
    group: int = 0

    @property
    def _x_rows(self) -> Interval:
        return ALL_ROWS if self.x_rows == "all" else LAST_ROW

    def reads(self, buffers: Buffers) -> tuple[Read, ...]:
        rows, columns = self._x_rows, (0, self.k)
        found: list[Read] = []
        match self.prologue:
            case None:
                found.append(read(self.x, rows, columns))
            case Norm(gain=gain):
                found.append(read(self.x, rows, columns))
                found.append(read(Operand(buffer=gain), columns))
            case LayerNorm(gain=gain, bias=shift):
                found.append(read(self.x, rows, columns))
                found.append(read(Operand(buffer=gain), columns))
                if shift is not None:
                    found.append(read(Operand(buffer=shift), columns))
            case MergeSplits(stats=stats, splits=splits, heads=heads):
                found.append(read(self.x, (0, splits), rows, columns))
                found.append(read(stats, (0, splits), rows, (0, heads), (0, 2)))
        if self.bias is not None:
            found.append(read(Operand(buffer=self.bias), self.rows))
        if self.scales is not None:
            found.append(read(Operand(buffer=self.scales), self.rows, (0, buffers[self.scales].shape[1])))
        match self.epilogue:
            case AddResidual(residual=residual):
                found.append(read(residual, rows, self.rows))
            case Argmax(prompt_length=length):
                found.append(read(Operand(buffer=length), (0, 1)))
            case Store() | GatedMul():
                pass
        return tuple(found)

    def writes(self, buffers: Buffers) -> tuple[Write, ...]:
        low, high = self.rows
        match self.epilogue:
            case Store(out=out) | AddResidual(out=out):
                return (write(out, self._x_rows, self.rows),)
            case GatedMul(out=out):
                return (write(out, self._x_rows, (low // 2, high // 2)),)
            case Argmax(logits=logits, value=value, index=index, slot=slot):
                one = (slot, slot + 1)
                return (write(logits, self.rows), write(value, one), write(index, one))

    def streams(self, buffers: Buffers) -> tuple[Region, ...]:
        return (Region(buffer=self.weight, box=(self.rows, (0, self.k))),)

    def macs(self, env: Env) -> int:
        low, high = self.rows
        return (high - low) * self.k * (env[TOKENS] if self.x_rows == "all" else 1)
