"""The task kinds: what each reads, writes and streams, derived from its parameters alone.

A task is what one worker does between two waits. Its kind is a frozen record whose fields are its whole declaration;
``reads``, ``writes`` and ``streams`` are functions of those fields, so a schedule cannot lie about what a task
touches: the validator derives them again and compares. Every kind has one meaning, in ``interpreter/semantics.py``.

Legend of shapes: T rows of a step (``tokens``), K columns of an input, N rows of a weight, S splits of the context.
"""

from __future__ import annotations

from amk.ir.accesses import ALL_ROWS, NEXT_POSITION, Buffers, Read, TaskKind, Write, read, whole, write
from amk.ir.attention import ROWS_PER_SPLIT, Attention, HeadNorm, active_splits, split_rows
from amk.ir.buffers import ITEM_BYTES, Cost, Operand
from amk.ir.gemv import AddResidual, Argmax, Epilogue, GatedMul, Gemv, LayerNorm, MergeSplits, Norm, Prologue, Store
from amk.ir.regions import TOKENS, Env

__all__ = [
    "ROWS_PER_SPLIT",
    "AddNorm",
    "AddResidual",
    "AnyKind",
    "Argmax",
    "Attention",
    "Begin",
    "Buffers",
    "Epilogue",
    "GatedMul",
    "Gemv",
    "HeadNorm",
    "LayerNorm",
    "MergeSplits",
    "Norm",
    "Prologue",
    "Read",
    "Sample",
    "Store",
    "TaskKind",
    "Write",
    "active_splits",
    "split_rows",
]


class Begin(TaskKind, tag="begin"):
    """Opens every queue: leave the launch if the step before set ``stop``."""

    stop: Operand

    def reads(self, buffers: Buffers) -> tuple[Read, ...]:
        return (read(self.stop, (0, 1)),)

    def writes(self, buffers: Buffers) -> tuple[Write, ...]:
        return ()


class AddNorm(TaskKind, tag="add_norm"):
    """Columns of out = residual + x / sqrt(mean(x^2) + eps) * gain * scale: a norm behind a block, not before it.

    Attributes
    ----------
    x
        [T, K] activations, all of whose columns are read.
    columns
        Half-open range of those that this task writes.
    """

    x: Operand
    k: int
    gain: str
    eps: float
    residual: Operand
    out: Operand
    columns: tuple[int, int]
    scale: float = 1.0

    def reads(self, buffers: Buffers) -> tuple[Read, ...]:
        return (
            read(self.x, ALL_ROWS, (0, self.k)),
            read(Operand(buffer=self.gain), self.columns),
            read(self.residual, ALL_ROWS, self.columns),
        )

    def writes(self, buffers: Buffers) -> tuple[Write, ...]:
        return (write(self.out, ALL_ROWS, self.columns),)


class Sample(TaskKind, tag="sample"):
    """Closes the step: pick the next token, publish it, write ``stop`` and the embedding of the next step's rows.

    The next token is the prompt's where the prompt reaches that far, else the largest of ``value`` with the lowest
    ``index`` among equals. ``stop`` is set when a sampled token is in ``eos``. ``next_hidden`` receives the embedding
    rows of positions ``[pos + tokens, pos + 2*tokens)``: from the prompt where it reaches that far; a row past it is
    the sampled token's.

    Attributes
    ----------
    value, index
        [slots] partial maxima of the LM head.
    prompt, prompt_length, eos
        Inputs: [context] ids, [1], [n] ids padded with -1.
    table
        [vocab, hidden] embedding weights, a row of which is read; an embedding is the row times ``scale``.
    scales, group
        Of a table of integers, as those of a ``Gemv``.
    token
        [context + 1] output, indexed by position.
    """

    value: Operand
    index: Operand
    slots: int
    prompt: str
    prompt_length: str
    eos: str
    table: str
    hidden: int
    token: Operand
    stop: Operand
    next_hidden: Operand
    scale: float = 1.0
    scales: str | None = None
    group: int = 0

    def reads(self, buffers: Buffers) -> tuple[Read, ...]:
        inputs = [self.prompt, self.prompt_length, self.eos, self.table]
        if self.scales is not None:
            inputs.append(self.scales)
        return (
            read(self.value, (0, self.slots)),
            read(self.index, (0, self.slots)),
            *(read(Operand(buffer=name), *whole(buffers[name])) for name in inputs),
        )

    def writes(self, buffers: Buffers) -> tuple[Write, ...]:
        return (
            write(self.token, NEXT_POSITION),
            write(self.stop, (0, 1)),
            write(self.next_hidden, ALL_ROWS, (0, self.hidden)),
        )

    def cost(self, buffers: Buffers, env: Env) -> Cost:
        # The declared read of the table is a superset: one row a token is touched.
        row = self.hidden * env[TOKENS]
        small = 8 * self.slots + 4 * buffers[self.eos].shape[0]
        table_bytes = row * ITEM_BYTES[buffers[self.table].dtype]
        return Cost(stream_bytes=0, read_bytes=small + table_bytes, write_bytes=4 * row + 8, macs=0)


AnyKind = Begin | Gemv | Attention | AddNorm | Sample
