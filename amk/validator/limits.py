"""What one launch can hold: limits of the launch format and of the ring, which the capacity rule enforces."""

from __future__ import annotations

from typing import Final

WORKERS_MAX: Final = 1024
COUNTERS_MAX: Final = 65_536
TASKS_MAX: Final = 2**24

# Values and thresholds are compared as int32 differences; this much of the range must hold the steps in flight.
SPAN_MAX: Final = 2**31

# Epochs of tagged words are unsigned and 32 bits wide.
EPOCHS_MAX: Final = 2**32

# Rows of a step: the activation rows of one tensor-core tile, hi and lo.
TOKENS_MAX: Final = 8

# Coefficients and bases of region bounds, so that every product below stays inside 64 bits.
COEFFICIENT_MAX: Final = 2**10
BASE_MAX: Final = 2**45

# Tasks by which warps may drift apart: the consumer's bookkeeping holds this many.
DRIFT_MAX: Final = 8

# Rows of one GEMV tile, and columns of one block of the packed layout.
TILE_ROWS: Final = 8
TILE_COLUMNS: Final = 32

# An activation is staged as two bf16 values, hi and lo.
STAGED_BYTES: Final = 4

# What each consumer warp keeps in shared memory for each row of a step: its sums of four tiles of eight weight rows.
SUMS_BYTES: Final = 4 * TILE_ROWS * 4

# Shared memory beside ring, staging and sums: barriers, task descriptors, row padding, alignment.
SCRATCH_BYTES: Final = 4 * 1024
