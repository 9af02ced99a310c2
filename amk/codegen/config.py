"""The compile-time constants of a kernel, and how they follow from a schedule.

A block's shared memory is the ring, one work area for the running task, the consumer warps' sums, and scratch. Ring,
sums and scratch are what the capacity rule of the validator adds up; the work area takes of the rest what it can use:

    ring | sums | scratch | work: max(attention, staged activations), at most what the target has left

Attention adds nothing up: it has the area of the sums too, but for what a step of one row stages before the warps first
meet. It takes a run of cached rows at once: a step of one row several stages of the ring where its past is long, else
some strips of 16 or 8, as a step of several rows does; and fewer where what it keeps of a run would not fit. The
rendered source holds the compiler to the result: ``sizeof(Shared<Config>)`` is asserted to be within ``shared_bytes``,
which is what a launch asks for.
"""

from __future__ import annotations

from typing import Final

from amk.codegen import abi
from amk.codegen.errors import NotGeneratableError
from amk.codegen.shapes import GemvShape, gemv_shapes
from amk.codegen.supported import HeadShape, head_shape, hidden_tagged
from amk.ir.buffers import ITEM_BYTES
from amk.ir.layout import LAYOUT_COLUMNS, tiles_summed
from amk.ir.record import Record
from amk.ir.regions import TOKENS
from amk.ir.schedule import Schedule
from amk.ir.tasks import Argmax, Gemv
from amk.validator.limits import SCRATCH_BYTES, STAGED_BYTES, SUMS_BYTES, TILE_ROWS

WARP: Final = 32

WORK_ALIGN: Final = 128
"""Bytes to which the areas of shared memory are aligned."""

ROW_PAD: Final = 4
"""Elements behind each staged row; ``kRowPad`` of csrc/vm/shared.cuh."""

COPY_UNIT: Final = 16
"""Bytes that an asynchronous copy moves at least; cached rows are padded to it."""

RUN_ROWS_MAX: Final = 256
"""Cached rows of a run, at most: what a longer one saves in meetings its scores cost in memory."""

RUN_STRIPS_MAX: Final = 9
"""Strips of a run, at most: the rows of a split of a short past, or of two where they are bf16, and the step's own."""

_FLOAT: Final = 4
_BLOCK_BYTES: Final = 512
_VECTOR: Final = 4
_FRAGMENT: Final = WARP * 16
"""Bytes of a strip's weights for a set of queries, or of its values in a slice of columns: 16 a lane."""
_SET_QUERIES: Final = 8
_SLICE_COLUMNS: Final = 16


class KernelConfig(Record):
    """All that the source of one kernel varies in.

    Attributes
    ----------
    consumer_warps
        Of a block, beside its producer warp.
    stages, stage_bytes, in_flight_bytes
        The ring, and the cap on copies under way.
    work_bytes
        Shared memory of the running task.
    shared_bytes
        All shared memory of a block: the dynamic shared memory of a launch.
    past_rows
        Cached rows of a piece of the stream.
    run_rows
        Cached rows that attention of a step of one row takes at once of a long past.
    run_strips
        Strips of 16 rows, or 8 of fp32, that attention takes at once else, the step's own rows among them.
    tokens_max
        Most rows of a step.
    head_dim, head_stride
        Elements of a head, and from one cached row to the next.
    group
        Query heads that share a KV head.
    kv_bytes
        Of an element of the cache.
    head_norm
        Of queries and keys: a number of ``abi.HEAD_NORMS``.
    softcap
        Whether scores are capped.
    tagged_hidden, tagged_qkv
        Whether words of the residual stream, and of attention's input, carry epochs.
    gemvs
        The shapes of its GEMVs; a task names its own by its number here.
    """

    consumer_warps: int
    stages: int
    stage_bytes: int
    in_flight_bytes: int
    work_bytes: int
    shared_bytes: int
    past_rows: int
    run_rows: int
    run_strips: int
    tokens_max: int
    head_dim: int
    head_stride: int
    group: int
    kv_bytes: int
    head_norm: int
    softcap: bool
    tagged_hidden: bool
    tagged_qkv: bool
    gemvs: tuple[GemvShape, ...]

    @property
    def threads(self) -> int:
        """Threads of a block: the consumer warps' and the producer's."""
        return WARP * (self.consumer_warps + 1)


def kernel_config(schedule: Schedule) -> KernelConfig:
    """The constants that ``schedule`` needs.

    Raises
    ------
    NotGeneratableError
        Its attention tasks differ in one of them, a task does not fit the target's shared memory, or one would store
        tagged words before it has read all that it multiplies.
    """
    target = schedule.target
    tokens = schedule.symbol(TOKENS).high
    head = head_shape(schedule)
    item = ITEM_BYTES[head.kv_dtype]
    stride = _up(head.dim * item, COPY_UNIT) // item
    beside = target.stages * target.stage_bytes + target.consumer_warps * tokens * SUMS_BYTES + SCRATCH_BYTES
    room = (target.shared_memory_bytes - beside) // WORK_ALIGN * WORK_ALIGN

    queries = head.group * tokens
    # The step's own rows, their norms, and the areas' alignment.
    kept = _FLOAT * (2 * tokens * stride + 2 * tokens) + 2 * COPY_UNIT
    run, strip, values = _run_bytes(head, queries, stride)
    split, split_score = _split_bytes(head, stride, target.consumer_warps)
    rows = min(target.stage_bytes // (stride * item), (room - kept - split) // split_score, RUN_ROWS_MAX)
    sums = target.consumer_warps * tokens * SUMS_BYTES
    # Of a step of one row: loaded and staged before the warps first meet, so not in sums that they may still read.
    loaded = kept + _FLOAT * head.group * stride
    strips = min((room + sums - kept - run) // strip, (room - loaded) // values, RUN_STRIPS_MAX)
    least = max(loaded, STAGED_BYTES * tokens * (max(LAYOUT_COLUMNS.values()) + ROW_PAD))
    if target.stages < 2:
        raise NotGeneratableError(
            feature="attention through a ring of one stage: it holds keys while it stages values",
            fix="use a target with two stages or more",
        )
    if rows < 1 or strips < 1 or least > room:
        raise NotGeneratableError(
            feature=f"attention of {queries} queries of {head.dim} in the {max(room, 0)} bytes of shared memory that "
            f"the ring of {target.name} leaves",
            fix="use fewer tokens_per_pass, or a target with more shared memory or a smaller ring",
        )
    run_rows = min((room - kept - split) // split_score, RUN_ROWS_MAX) // rows * rows
    attention = kept + max(run + strip * strips, split + split_score * run_rows) - sums
    staged = STAGED_BYTES * tokens * (target.k_chunk + ROW_PAD)
    work = _up(min(max(attention, staged, loaded + values * strips), room), WORK_ALIGN)
    _check_tagged(schedule, work)
    return KernelConfig(
        consumer_warps=target.consumer_warps,
        stages=target.stages,
        stage_bytes=target.stage_bytes,
        # One copy at least, and no more than the ring has stages for.
        in_flight_bytes=min(max(target.in_flight_bytes, target.stage_bytes), target.stages * target.stage_bytes),
        work_bytes=work,
        shared_bytes=beside + work,
        past_rows=rows,
        run_rows=run_rows,
        run_strips=strips,
        tokens_max=tokens,
        head_dim=head.dim,
        head_stride=stride,
        group=head.group,
        kv_bytes=item,
        head_norm=abi.HEAD_NORMS[head.norm],
        softcap=head.capped,
        tagged_hidden=hidden_tagged(schedule),
        tagged_qkv=head.tagged_qkv,
        gemvs=gemv_shapes(schedule),
    )


def _check_tagged(schedule: Schedule, work: int) -> None:
    """V2 of the validator: nothing tagged is stored before the task's last read."""
    for task in schedule.tasks:
        if not isinstance(task.op, Gemv) or isinstance(task.op.epilogue, Argmax):
            continue
        tagged = schedule.buffer[task.op.epilogue.out.buffer].tagged
        if tagged and any(_stores_early(task.op, rows, schedule, work) for rows in {1, schedule.symbol(TOKENS).high}):
            raise NotGeneratableError(
                feature=f"{task.id}, which would store tagged words before it has read all of its input",
                fix="use fewer tokens_per_pass, or the tile pass of this version",
            )


def _stores_early(op: Gemv, rows: int, schedule: Schedule, work: int) -> bool:
    """Whether a step of ``rows`` rows stores some tiles before it has staged all of x (csrc/vm/stream.cuh).

    It has where it stages whole rows, or stores all tiles at once.
    """
    low, high = op.rows
    columns = LAYOUT_COLUMNS[schedule.buffer[op.weight].layout]
    piece = schedule.target.stage_bytes // _BLOCK_BYTES
    staged = (work // (rows * STAGED_BYTES) - ROW_PAD) // columns
    staged = staged if staged < piece else staged // piece * piece
    stored = tiles_summed(schedule.target.consumer_warps, rows, schedule.symbol(TOKENS).high)
    return -(-op.k // columns) > staged and -(-(high - low) // TILE_ROWS) > stored


def _run_bytes(head: HeadShape, queries: int, stride: int) -> tuple[int, int, int]:
    """Of ``AttentionRun`` (csrc/ops/attention_rows.cuh): without strips, what a strip adds, and its values of that."""
    sets, slices = -(-queries // _SET_QUERIES), -(-head.dim // _SLICE_COLUMNS)
    values = slices * _FRAGMENT
    return _FLOAT * queries * stride, sets * (_FRAGMENT + 2 * _FLOAT * _SET_QUERIES) + values, values


def _split_bytes(head: HeadShape, stride: int, warps: int) -> tuple[int, int]:
    """Of ``AttentionSplit`` (csrc/ops/attention_rows.cuh): its size without scores, and what a row of a run adds."""
    sets = min(_power_above(-(-head.group // 3)), warps)
    each = -(-head.group // sets)
    set_warps, slots = warps // sets, sets * each
    scores = _FLOAT * max(_power_above(each), 1)
    if each > _VECTOR:
        scores = _up(_FLOAT * each, COPY_UNIT)
    part = _FLOAT * slots * set_warps * _up(head.dim, _VECTOR)
    totals = _FLOAT * slots * (_up(set_warps, _VECTOR) + 2)
    fixed = _FLOAT * head.group * stride + 2 * warps * scores + part + totals
    return fixed + 5 * COPY_UNIT, 2 * sets * scores


def _power_above(value: int) -> int:
    """The least power of two that is not below ``value``."""
    return 1 << (value - 1).bit_length()


def _up(value: int, unit: int) -> int:
    """``value`` rounded up to a multiple of ``unit``."""
    return -(-value // unit) * unit
