"""The task kinds: what each reads, writes and streams, derived from its parameters alone.

A task is what one worker does between two waits. Its kind is a frozen record whose fields are its whole declaration;
``reads``, ``writes`` and ``streams`` are functions of those fields, so a schedule cannot lie about what a task
touches: the validator derives them again and compares. Every kind has one meaning, in ``interpreter/semantics.py``.

Legend of shapes: T rows of a step (``tokens``), K columns of an input, N rows of a weight, S splits of the context.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec.structs import replace

from amk.ir.buffers import ITEM_BYTES, Buffer, Cost, Operand
from amk.ir.record import Record
from amk.ir.regions import POS, TOKENS, Box, Env, Interval, Region, linear, volume

Buffers = Mapping[str, Buffer]

ROWS_PER_SPLIT = 256
"""Positions of the past for which one more split becomes active."""

ALL_ROWS: Interval = (0, linear(**{TOKENS: 1}))
LAST_ROW: Interval = (linear(-1, **{TOKENS: 1}), linear(**{TOKENS: 1}))
NEW_POSITIONS: Interval = (linear(**{POS: 1}), linear(**{POS: 1, TOKENS: 1}))
PAST_POSITIONS: Interval = (0, linear(**{POS: 1}))
NEXT_POSITION: Interval = (linear(**{POS: 1, TOKENS: 1}), linear(1, **{POS: 1, TOKENS: 1}))


class Read(Record):
    """A read of version ``version`` of this step (``lag`` 0) or of the step before (``lag`` 1)."""

    region: Region
    version: int = 0
    lag: int = 0


class Write(Record):
    """A write that makes version ``version`` of this step."""

    region: Region
    version: int = 0


def _read(operand: Operand, *box: Interval) -> Read:
    return Read(region=Region(buffer=operand.buffer, box=box), version=operand.version, lag=operand.lag)


def _write(operand: Operand, *box: Interval) -> Write:
    return Write(region=Region(buffer=operand.buffer, box=box), version=operand.version)


def active_splits(past: int, splits: int) -> int:
    """Runs of the past that have rows: one for each ``ROWS_PER_SPLIT``, at least one, at most ``splits``."""
    return max(1, min(splits, -(-past // ROWS_PER_SPLIT)))


def split_rows(past: int, split: int, splits: int) -> tuple[int, int]:
    """Half-open rows of the past that ``split`` attends to; empty for an inactive one."""
    each = -(-past // active_splits(past, splits))
    return (min(past, split * each), min(past, (split + 1) * each))


def _whole(buffer: Buffer) -> Box:
    return tuple((0, size) for size in buffer.shape)


# --- prologues: how a GEMV makes its input row -----------------------------------------------------------------------


class Norm(Record, tag_field="kind", tag="norm"):
    """x / sqrt(mean(x^2) + eps) * gain, the scale applied after the dot product (it is linear)."""

    gain: str
    eps: float


class MergeSplits(Record, tag_field="kind", tag="merge_splits"):
    """x holds S partial attention results and ``stats`` their (maximum, sum) per head; merge them in split order."""

    stats: Operand
    splits: int
    heads: int


Prologue = Norm | MergeSplits


# --- epilogues: what a GEMV does with its output rows ----------------------------------------------------------------


class Store(Record, tag_field="kind", tag="store"):
    """out[t, n] = y[t, n]."""

    out: Operand


class AddResidual(Record, tag_field="kind", tag="add_residual"):
    """out[t, n] = residual[t, n] + y[t, n]; ``out`` and ``residual`` may be versions of one buffer."""

    residual: Operand
    out: Operand


class SiluMul(Record, tag_field="kind", tag="silu_mul"):
    """out[t, n/2] = silu(y[t, n]) * y[t, n+1] for even n: gate and up rows alternate in the weight."""

    out: Operand


class Argmax(Record, tag_field="kind", tag="argmax"):
    """Logits of the step's last row, and the largest of this task's with the lowest index among equals.

    ``value[slot]`` and ``index[slot]`` receive it. Steps whose next token is still given by the prompt do no work and
    write the neutral element: zero logits, minus infinity, index 0.
    """

    logits: Operand
    value: Operand
    index: Operand
    slot: int
    prompt_length: str


Epilogue = Store | AddResidual | SiluMul | Argmax


# --- kinds -----------------------------------------------------------------------------------------------------------


class TaskKind(Record, tag_field="kind"):
    """Base of the kinds."""

    def reads(self, buffers: Buffers) -> tuple[Read, ...]:
        """Data read after the task's waits, in the order of its fields."""
        raise NotImplementedError

    def writes(self, buffers: Buffers) -> tuple[Write, ...]:
        """Data written, all of it, always."""
        raise NotImplementedError

    def streams(self, buffers: Buffers) -> tuple[Region, ...]:
        """Data that the worker's producer may read ahead of the task."""
        return ()

    def macs(self, env: Env) -> int:
        """Multiply-adds of one step."""
        return 0

    def cost(self, buffers: Buffers, env: Env) -> Cost:
        """Bytes moved and multiply-adds of one step, with ``env`` giving the symbols."""

        def size(region: Region) -> int:
            return volume(region.box, env) * ITEM_BYTES[buffers[region.buffer].dtype]

        return Cost(
            stream_bytes=sum(size(region) for region in self.streams(buffers)),
            read_bytes=sum(size(read.region) for read in self.reads(buffers)),
            write_bytes=sum(size(write.region) for write in self.writes(buffers)),
            macs=self.macs(env),
        )


class Begin(TaskKind, tag="begin"):
    """Opens every queue: leave the launch if the step before set ``stop``."""

    stop: Operand

    def reads(self, buffers: Buffers) -> tuple[Read, ...]:
        return (_read(self.stop, (0, 1)),)

    def writes(self, buffers: Buffers) -> tuple[Write, ...]:
        return ()


class Gemv(TaskKind, tag="gemv"):
    """Rows ``rows`` of ``weight`` times the input rows: y[t, n] = sum_k x[t, k] * weight[n, k].

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
    """

    x: Operand
    k: int
    weight: str
    rows: tuple[int, int]
    epilogue: Epilogue
    prologue: Prologue | None = None
    x_rows: Literal["all", "last"] = "all"

    @property
    def _x_rows(self) -> Interval:
        return ALL_ROWS if self.x_rows == "all" else LAST_ROW

    def reads(self, buffers: Buffers) -> tuple[Read, ...]:
        rows, columns = self._x_rows, (0, self.k)
        found: list[Read] = []
        match self.prologue:
            case None:
                found.append(_read(self.x, rows, columns))
            case Norm(gain=gain):
                found.append(_read(self.x, rows, columns))
                found.append(_read(Operand(buffer=gain), columns))
            case MergeSplits(stats=stats, splits=splits, heads=heads):
                found.append(_read(self.x, (0, splits), rows, columns))
                found.append(_read(stats, (0, splits), rows, (0, heads), (0, 2)))
        match self.epilogue:
            case AddResidual(residual=residual):
                found.append(_read(residual, rows, self.rows))
            case Argmax(prompt_length=length):
                found.append(_read(Operand(buffer=length), (0, 1)))
            case Store() | SiluMul():
                pass
        return tuple(found)

    def writes(self, buffers: Buffers) -> tuple[Write, ...]:
        low, high = self.rows
        match self.epilogue:
            case Store(out=out) | AddResidual(out=out):
                return (_write(out, self._x_rows, self.rows),)
            case SiluMul(out=out):
                return (_write(out, self._x_rows, (low // 2, high // 2)),)
            case Argmax(logits=logits, value=value, index=index, slot=slot):
                one = (slot, slot + 1)
                return (_write(logits, self.rows), _write(value, one), _write(index, one))

    def streams(self, buffers: Buffers) -> tuple[Region, ...]:
        return (Region(buffer=self.weight, box=(self.rows, (0, self.k))),)

    def macs(self, env: Env) -> int:
        low, high = self.rows
        return (high - low) * self.k * (env[TOKENS] if self.x_rows == "all" else 1)


class Attention(TaskKind, tag="attention"):
    """One KV head's query group over one split of the past; split 0 also takes the step's own rows and appends them.

    The past ``[0, pos)`` is cut as ``split_rows`` says, so a split may be empty: it writes the neutral element. Scores
    are q.k*scale over rows <= the query's own.

    Attributes
    ----------
    qkv
        [T, (heads + 2*kv_heads)*head_dim] un-rotated projections: all q heads, then k, then v.
    k_cache, v_cache
        [kv_heads, context, head_dim]; k is kept rotated.
    rope
        [context, 2, head_dim/2] cos and sin.
    out
        [T, heads*head_dim], finished, when ``splits`` is 1; else [S, T, heads*head_dim], not yet divided by the sum.
    stats
        [S, T, heads, 2]: maximum score and sum of exponentials; absent when ``splits`` is 1.
    """

    qkv: Operand
    k_cache: str
    v_cache: str
    rope: str
    out: Operand
    kv_head: int
    split: int
    splits: int
    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    stats: Operand | None = None

    @property
    def q_heads(self) -> tuple[int, int]:
        """Half-open range of the query heads that share this KV head."""
        group = self.heads // self.kv_heads
        return (self.kv_head * group, (self.kv_head + 1) * group)

    @property
    def q_columns(self) -> tuple[int, int]:
        """Columns of the group in q and in the output."""
        low, high = self.q_heads
        return (low * self.head_dim, high * self.head_dim)

    def _kv_columns(self, first_head: int) -> tuple[int, int]:
        head = first_head + self.kv_head
        return (head * self.head_dim, (head + 1) * self.head_dim)

    @property
    def k_columns(self) -> tuple[int, int]:
        """Columns of this head's k in ``qkv``."""
        return self._kv_columns(self.heads)

    @property
    def v_columns(self) -> tuple[int, int]:
        """Columns of this head's v in ``qkv``."""
        return self._kv_columns(self.heads + self.kv_heads)

    def reads(self, buffers: Buffers) -> tuple[Read, ...]:
        found = [_read(self.qkv, ALL_ROWS, self.q_columns)]
        if self.split == 0:
            found.append(_read(self.qkv, ALL_ROWS, self.k_columns))
            found.append(_read(self.qkv, ALL_ROWS, self.v_columns))
        found.append(_read(Operand(buffer=self.rope), NEW_POSITIONS, (0, 2), (0, self.head_dim // 2)))
        return tuple(found)

    def writes(self, buffers: Buffers) -> tuple[Write, ...]:
        head = (self.kv_head, self.kv_head + 1)
        if self.stats is None:
            found = [_write(self.out, ALL_ROWS, self.q_columns)]
        else:
            one = (self.split, self.split + 1)
            found = [
                _write(self.out, one, ALL_ROWS, self.q_columns),
                _write(self.stats, one, ALL_ROWS, self.q_heads, (0, 2)),
            ]
        if self.split == 0:
            for cache in (self.k_cache, self.v_cache):
                found.append(_write(Operand(buffer=cache), head, NEW_POSITIONS, (0, self.head_dim)))
        return tuple(found)

    def streams(self, buffers: Buffers) -> tuple[Region, ...]:
        box = ((self.kv_head, self.kv_head + 1), PAST_POSITIONS, (0, self.head_dim))
        return (Region(buffer=self.k_cache, box=box), Region(buffer=self.v_cache, box=box))

    def macs(self, env: Env) -> int:
        first, last = self.q_columns
        low, high = split_rows(env[POS], self.split, self.splits)
        own = env[TOKENS] if self.split == 0 else 0
        return 2 * (last - first) * env[TOKENS] * (high - low + own)

    def cost(self, buffers: Buffers, env: Env) -> Cost:
        # The declared streams are the whole past, which holds for every split at every position.
        low, high = split_rows(env[POS], self.split, self.splits)
        row = self.head_dim * sum(ITEM_BYTES[buffers[name].dtype] for name in (self.k_cache, self.v_cache))
        return replace(TaskKind.cost(self, buffers, env), stream_bytes=(high - low) * row)


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
        [vocab, hidden] embedding weights, a row of which is read.
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

    def reads(self, buffers: Buffers) -> tuple[Read, ...]:
        whole = (self.prompt, self.prompt_length, self.eos, self.table)
        return (
            _read(self.value, (0, self.slots)),
            _read(self.index, (0, self.slots)),
            *(_read(Operand(buffer=name), *_whole(buffers[name])) for name in whole),
        )

    def writes(self, buffers: Buffers) -> tuple[Write, ...]:
        return (
            _write(self.token, NEXT_POSITION),
            _write(self.stop, (0, 1)),
            _write(self.next_hidden, ALL_ROWS, (0, self.hidden)),
        )

    def cost(self, buffers: Buffers, env: Env) -> Cost:
        # The declared read of the table is a superset: one row a token is touched.
        row = self.hidden * env[TOKENS]
        small = 8 * self.slots + 4 * buffers[self.eos].shape[0]
        table_bytes = row * ITEM_BYTES[buffers[self.table].dtype]
        return Cost(stream_bytes=0, read_bytes=small + table_bytes, write_bytes=4 * row + 8, macs=0)


AnyKind = Begin | Gemv | Attention | Sample
