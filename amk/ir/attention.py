"""The attention task: one KV head's query group over one split of the past."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from amk.ir.accesses import ALL_ROWS, NEW_POSITIONS, PAST_POSITIONS, Buffers, Read, TaskKind, Write, read, write
from amk.ir.buffers import ITEM_BYTES, Cost, Operand
from amk.ir.record import Record
from amk.ir.regions import POS, TOKENS, Env, Region

ROWS_PER_SPLIT = 64
"""Positions of the past for which one more split becomes active."""


def active_splits(past: int, splits: int) -> int:
    """Runs of the past that have rows: one for each ``ROWS_PER_SPLIT``, at least one, at most ``splits``."""
    return max(1, min(splits, -(-past // ROWS_PER_SPLIT)))


def split_rows(past: int, split: int, splits: int, *, window: int | None = None) -> tuple[int, int]:
    """Half-open rows of the past that ``split`` attends to; empty for an inactive one.

    Under a window the past begins with the first row that the first of the step's rows sees.
    """
    first = 0 if window is None else max(0, past - window + 1)
    seen = past - first
    each = -(-seen // active_splits(seen, splits))
    return (first + min(seen, split * each), first + min(seen, (split + 1) * each))


class HeadNorm(Record):
    """RMSNorm of queries or keys, before they are rotated: of each head, or of the whole row of heads.

    ``gain`` is [head_dim], or as wide as the row.
    """

    gain: str
    eps: float
    over: Literal["head", "row"] = "head"


class Attention(TaskKind, tag="attention"):
    """One KV head's query group over one split of the past; split 0 also takes the step's own rows and appends them.

    The past ``[0, pos)`` is cut as ``split_rows`` says, so a split may be empty: it writes the neutral element. Scores
    are q.k*scale, then softcap * tanh(score / softcap) where there is a cap, over rows <= the query's own and, under a
    window, no more than window - 1 before it.

    Attributes
    ----------
    qkv
        [T, (heads + 2*kv_heads)*head_dim] un-rotated projections: all q heads, then k, then v.
    k_cache, v_cache
        [kv_heads, context, head_dim]; k is kept rotated.
    rope
        [context, 2, rotary_dim/2] cos and sin; None where positions are not embedded.
    rotary_dim
        Elements of a head that turn, the first ones; 0 without ``rope``.
    q_norm, k_norm
        What queries and keys go through first.
    out
        [T, heads*head_dim], finished, when ``splits`` is 1; else [S, T, heads*head_dim], not yet divided by the sum.
    stats
        [S, T, heads, 2]: maximum score and sum of exponentials; absent when ``splits`` is 1.
    """

    qkv: Operand
    k_cache: str
    v_cache: str
    rope: str | None
    rotary_dim: int
    out: Operand
    kv_head: int
    split: int
    splits: int
    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    stats: Operand | None = None
    window: int | None = None
    softcap: float | None = None
    q_norm: HeadNorm | None = None
    k_norm: HeadNorm | None = None

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

    @property
    def _q_row(self) -> tuple[int, int]:
        return (0, self.heads * self.head_dim)

    @property
    def _k_row(self) -> tuple[int, int]:
        return (self.heads * self.head_dim, (self.heads + self.kv_heads) * self.head_dim)

    def reads(self, buffers: Buffers) -> tuple[Read, ...]:
        found = self._read_head(self.q_norm, self.q_columns, self._q_row)
        if self.split == 0:
            found += self._read_head(self.k_norm, self.k_columns, self._k_row)
            found.append(read(self.qkv, ALL_ROWS, self.v_columns))
        if self.rope is not None:
            found.append(read(Operand(buffer=self.rope), NEW_POSITIONS, (0, 2), (0, self.rotary_dim // 2)))
        return tuple(found)

    def _read_head(self, norm: HeadNorm | None, columns: tuple[int, int], row: tuple[int, int]) -> list[Read]:
        """Queries or keys, as much of the row as their norm needs, and its gain."""
        if norm is None:
            return [read(self.qkv, ALL_ROWS, columns)]
        gain = Operand(buffer=norm.gain)
        if norm.over == "head":
            return [read(self.qkv, ALL_ROWS, columns), read(gain, (0, self.head_dim))]
        own = (columns[0] - row[0], columns[1] - row[0])
        return [read(self.qkv, ALL_ROWS, row), read(gain, own)]

    def writes(self, buffers: Buffers) -> tuple[Write, ...]:
        head = (self.kv_head, self.kv_head + 1)
        if self.stats is None:
            found = [write(self.out, ALL_ROWS, self.q_columns)]
        else:
            one = (self.split, self.split + 1)
            found = [
                write(self.out, one, ALL_ROWS, self.q_columns),
                write(self.stats, one, ALL_ROWS, self.q_heads, (0, 2)),
            ]
        if self.split == 0:
            for cache in (self.k_cache, self.v_cache):
                found.append(write(Operand(buffer=cache), head, NEW_POSITIONS, (0, self.head_dim)))
        return tuple(found)

    def streams(self, buffers: Buffers) -> tuple[Region, ...]:
        box = ((self.kv_head, self.kv_head + 1), PAST_POSITIONS, (0, self.head_dim))
        return (Region(buffer=self.k_cache, box=box), Region(buffer=self.v_cache, box=box))

    def macs(self, env: Env) -> int:
        first, last = self.q_columns
        low, high = split_rows(env[POS], self.split, self.splits, window=self.window)
        own = env[TOKENS] if self.split == 0 else 0
        return 2 * (last - first) * env[TOKENS] * (high - low + own)

    def cost(self, buffers: Buffers, env: Env) -> Cost:
        # The declared streams are the whole past, which holds for every split at every position.
        low, high = split_rows(env[POS], self.split, self.splits, window=self.window)
        row = self.head_dim * sum(ITEM_BYTES[buffers[name].dtype] for name in (self.k_cache, self.v_cache))
        return replace(TaskKind.cost(self, buffers, env), stream_bytes=(high - low) * row)
