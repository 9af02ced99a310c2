"""Whether the parameters of a task kind are possible, and its operands of the right kind, type and rank.

After this the kind's own functions can be called without fear: nothing they look up is missing, nothing they divide
by is zero. Whether their regions lie inside the buffers is the region rule's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

from amk.ir.buffers import Buffer, Dtype, Kind, Operand
from amk.ir.tasks import (
    AddNorm,
    AddResidual,
    AnyKind,
    Argmax,
    Attention,
    Begin,
    Epilogue,
    GatedMul,
    Gemv,
    LayerNorm,
    MergeSplits,
    Norm,
    Prologue,
    Sample,
    Store,
)

Kinds = frozenset[Kind]
Dtypes = frozenset[Dtype]

DATA: Final[Kinds] = frozenset({"activation", "state"})
RESULT: Final[Kinds] = frozenset({"activation", "state", "output"})
OUTPUT: Final[Kinds] = frozenset({"output"})
FIXED: Final[Kinds] = frozenset({"weight", "const"})
WEIGHT: Final[Kinds] = frozenset({"weight"})
INPUT: Final[Kinds] = frozenset({"input"})
CACHE: Final[Kinds] = frozenset({"kv"})

REAL: Final[Dtypes] = frozenset({"f32", "bf16"})
PACKED: Final[Dtypes] = frozenset({"f32", "bf16", "i8"})
WHOLE: Final[Dtypes] = frozenset({"i32"})

# More partial results than this are never worth merging; it also keeps products of parameters small.
SPLITS_MAX: Final = 1024


class Operands:
    """Checks tasks against the buffers of one schedule."""

    def __init__(self, buffers: Mapping[str, Buffer], max_context: int) -> None:
        self.buffers = buffers
        self.max_context = max_context
        self._known: dict[tuple[str, str, int], tuple[str, ...]] = {}

    def faults(self, op: AnyKind) -> list[str]:
        """What is wrong with the task's parameters and operands; empty if nothing is."""
        match op:
            case Begin(stop=stop):
                return list(self.buffer("stop", stop.buffer, DATA, WHOLE, 1))
            case Gemv():
                return list(self._gemv(op))
            case Attention():
                return list(self._attention_shape(op)) or list(self._attention(op))
            case AddNorm():
                return list(self._add_norm(op))
            case Sample():
                return list(self._sample(op))

    def buffer(self, role: str, name: str, kinds: Kinds, dtypes: Dtypes, rank: int) -> tuple[str, ...]:
        """What is wrong with a buffer in a role; remembered, because every layer asks the same."""
        key = (role, name, rank)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = tuple(self._buffer(role, name, kinds, dtypes, rank))
        return found

    def _buffer(self, role: str, name: str, kinds: Kinds, dtypes: Dtypes, rank: int) -> Iterator[str]:
        buffer = self.buffers.get(name)
        if buffer is None:
            yield f"{role} names the buffer {name!r}, which the schedule does not have"
            return
        if buffer.kind not in kinds:
            yield f"{role} is {name}, a {buffer.kind} buffer; it must be {' or '.join(sorted(kinds))}"
        if buffer.dtype not in dtypes:
            yield f"{role} is {name}, of type {buffer.dtype}; it must be {' or '.join(sorted(dtypes))}"
        if len(buffer.shape) != rank:
            yield f"{role} is {name}, of rank {len(buffer.shape)}; it must have {rank}"

    def written(self, role: str, operand: Operand, kinds: Kinds, dtypes: Dtypes, rank: int) -> Iterable[str]:
        """The same for an operand that is written."""
        late = (f"{role} is written with lag {operand.lag}",) if operand.lag else ()
        return (*late, *self.buffer(role, operand.buffer, kinds, dtypes, rank))

    # --- GEMV --------------------------------------------------------------------------------------------------------

    def _gemv(self, op: Gemv) -> Iterator[str]:
        faults = self.buffer("weight", op.weight, WEIGHT, PACKED, 2)
        yield from faults
        if op.k < 1:
            yield f"k={op.k} columns"
        low, high = op.rows
        if not 0 <= low < high:
            yield f"rows [{low}, {high}) are none"
        if not faults:
            rows, columns = self.buffers[op.weight].shape
            if high > rows or op.k > columns:
                yield f"rows [{low}, {high}) of {op.k} columns are not inside {op.weight}, [{rows}, {columns}]"
        if op.bias is not None:
            yield from self.buffer("bias", op.bias, FIXED, REAL, 1)
        yield from self._prologue(op, op.prologue)
        yield from self._epilogue(op, op.epilogue)

    def _prologue(self, op: Gemv, prologue: Prologue | None) -> Iterable[str]:
        match prologue:
            case None:
                return self.buffer("x", op.x.buffer, DATA, REAL, 2)
            case Norm(gain=gain):
                return (*self.buffer("x", op.x.buffer, DATA, REAL, 2), *self.buffer("gain", gain, FIXED, REAL, 1))
            case LayerNorm(gain=gain, bias=shift):
                vectors = (("gain", gain), *((("norm bias", shift),) if shift is not None else ()))
                faults = list(self.buffer("x", op.x.buffer, DATA, REAL, 2))
                for role, name in vectors:
                    faults += self.buffer(role, name, FIXED, REAL, 1)
                return faults
            case MergeSplits(stats=stats, splits=splits, heads=heads):
                x, y = ("split x", op.x.buffer), ("stats", stats.buffer)
                faults = [*self.buffer(*x, DATA, REAL, 3), *self.buffer(*y, DATA, REAL, 4)]
                if not 1 <= splits <= SPLITS_MAX:
                    faults.append(f"splits={splits}")
                if heads < 1 or op.k % heads:
                    faults.append(f"{op.k} columns are not {heads} heads")
                if stats.lag != op.x.lag:
                    faults.append("x and its stats are of different steps")
                return faults

    def _epilogue(self, op: Gemv, epilogue: Epilogue) -> Iterable[str]:
        low, high = op.rows
        match epilogue:
            case Store(out=out):
                return self.written("out", out, RESULT, REAL, 2)
            case AddResidual(out=out, residual=residual):
                return chain(
                    self.written("out", out, RESULT, REAL, 2), self.buffer("residual", residual.buffer, DATA, REAL, 2)
                )
            case GatedMul(out=out):
                odd = (f"rows [{low}, {high}) split a gate from its up row",) if low % 2 or high % 2 else ()
                return (*odd, *self.written("out", out, RESULT, REAL, 2))
            case Argmax():
                return self._argmax(op, epilogue)

    def _argmax(self, op: Gemv, epilogue: Argmax) -> Iterator[str]:
        if epilogue.slot < 0:
            yield f"slot={epilogue.slot}"
        if op.x_rows != "last":
            yield "an argmax looks at the last row only"
        yield from self.written("logits", epilogue.logits, RESULT, REAL, 1)
        yield from self.written("value", epilogue.value, DATA, REAL, 1)
        yield from self.written("index", epilogue.index, DATA, WHOLE, 1)
        yield from self.buffer("prompt_length", epilogue.prompt_length, INPUT, WHOLE, 1)

    # --- attention ---------------------------------------------------------------------------------------------------

    def _attention_shape(self, op: Attention) -> Iterator[str]:
        if op.heads < 1 or op.kv_heads < 1 or op.heads % max(1, op.kv_heads):
            yield f"{op.heads} heads do not share {op.kv_heads} KV heads"
        if op.head_dim < 2 or op.head_dim % 2:
            yield f"head_dim={op.head_dim} has no halves to rotate"
        if not 0 <= op.kv_head < op.kv_heads:
            yield f"kv_head={op.kv_head} of {op.kv_heads}"
        if not (1 <= op.splits <= SPLITS_MAX and 0 <= op.split < op.splits):
            yield f"split={op.split} of {op.splits}"
        if op.rotary_dim % 2 or not 0 <= op.rotary_dim <= op.head_dim:
            yield f"rotary_dim={op.rotary_dim} of head_dim={op.head_dim}"
        if (op.rope is None) != (op.rotary_dim == 0):
            yield f"{op.rotary_dim} elements turn {'without' if op.rope is None else 'with'} a rotary table"
        if op.window is not None and op.window < 1:
            yield f"window={op.window}"
        if (op.stats is None) != (op.splits == 1):
            yield f"{op.splits} splits {'without' if op.stats is None else 'with'} stats"

    def _attention(self, op: Attention) -> Iterator[str]:
        yield from self.buffer("qkv", op.qkv.buffer, DATA, REAL, 2)
        if op.rope is not None:
            yield from self.buffer("rope", op.rope, FIXED, REAL, 3)
        for role, norm in (("q_norm", op.q_norm), ("k_norm", op.k_norm)):
            if norm is not None:
                yield from self.buffer(f"the gain of {role}", norm.gain, FIXED, REAL, 1)
        yield from self.written(
            "out" if op.stats is None else "split out", op.out, DATA, REAL, 2 if op.stats is None else 3
        )
        if op.stats is not None:
            yield from self.written("stats", op.stats, DATA, REAL, 4)
        if op.k_cache == op.v_cache:
            yield f"k and v share the cache {op.k_cache}"
        for role, name in (("k_cache", op.k_cache), ("v_cache", op.v_cache)):
            faults = self.buffer(role, name, CACHE, REAL, 3)
            yield from faults
            want = (op.kv_heads, op.head_dim)
            if not faults and self.buffers[name].shape[::2] != want:
                yield f"{role} is {name}, of shape {self.buffers[name].shape}, not {want[0]} heads of {want[1]}"
            if not faults and self.buffers[name].shape[1] < self.max_context:
                yield f"{role} is {name}, which holds {self.buffers[name].shape[1]} of {self.max_context} positions"

    # --- norm behind a block -----------------------------------------------------------------------------------------

    def _add_norm(self, op: AddNorm) -> Iterator[str]:
        low, high = op.columns
        if not 0 <= low < high <= op.k:
            yield f"columns [{low}, {high}) of {op.k}"
        yield from self.buffer("x", op.x.buffer, DATA, REAL, 2)
        yield from self.buffer("gain", op.gain, FIXED, REAL, 1)
        yield from self.buffer("residual", op.residual.buffer, DATA, REAL, 2)
        yield from self.written("out", op.out, RESULT, REAL, 2)

    # --- sampler -----------------------------------------------------------------------------------------------------

    def _sample(self, op: Sample) -> Iterator[str]:
        if op.slots < 1 or op.hidden < 1:
            yield f"slots={op.slots}, hidden={op.hidden}"
        yield from self.buffer("value", op.value.buffer, DATA, REAL, 1)
        yield from self.buffer("index", op.index.buffer, DATA, WHOLE, 1)
        for role in ("prompt", "prompt_length", "eos"):
            yield from self.buffer(role, getattr(op, role), INPUT, WHOLE, 1)
        yield from self.buffer("table", op.table, FIXED, PACKED, 2)
        yield from self.written("token", op.token, OUTPUT, WHOLE, 1)
        yield from self.written("stop", op.stop, DATA, WHOLE, 1)
        yield from self.written("next_hidden", op.next_hidden, DATA, REAL, 2)
        table = self.buffers.get(op.table)
        if table is not None and len(table.shape) == 2 and table.shape[1] != op.hidden:
            yield f"rows of {op.table} have {table.shape[1]} columns, not {op.hidden}"
