// The pieces in which a task's data comes through the ring. The producer copies them in this order, the consumers take
// them in this order, and both know it from the task alone.
#pragma once

#include "vm/shared.cuh"

namespace amk {

__device__ inline u32 divide_up(u32 a, u32 b) { return (a + b - 1) / b; }
__device__ inline u32 least(u32 a, u32 b) { return a < b ? a : b; }

// A place in a ring of `kStages` stages, and the phase of its barriers. Kept as it goes, not computed from a count: the
// count of a long launch may wrap, and 2^32 need not be a multiple of the stages.
template <int kStages>
struct Cursor {
  u32 stage = 0;
  u32 parity = 0;

  __device__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

// A GEMV's weights: groups of tiles; in a group, chunks of columns; in a chunk, each tile's blocks, at most a stage
// full.
template <class Config>
struct GemvPieces {
  static constexpr u32 kPieceBlocks = Config::kStageBytes / kBlockBytes;

  u32 tiles;
  u32 blocks;        // of 32 columns, in a whole row of tiles
  u32 chunk_blocks;  // columns staged at once

  __device__ GemvPieces(const GemvTask& task, u32 rows) {
    tiles = divide_up(task.row_end - task.row_begin, kTileRows);
    blocks = divide_up(task.k, kTileColumns);
    chunk_blocks = least(blocks, columns_staged(rows) / kTileColumns);
  }

  // Columns of `rows` rows (hi and lo) that fit the work area.
  __device__ static u32 columns_staged(u32 rows) {
    const u32 fit = Config::kWorkBytes / (rows * 4) - kRowPad;
    return fit / kTileColumns * kTileColumns;
  }

  // Calls visit(tile, first block, block count) for each piece; stops when it returns false.
  template <class Visit>
  __device__ bool each_in_chunk(u32 first_tile, u32 chunk, Visit visit) const {
    const u32 chunk_end = least(chunk + chunk_blocks, blocks);
    const u32 tile_end = least(first_tile + kTileGroup, tiles);
    for (u32 tile = first_tile; tile < tile_end; ++tile) {
      for (u32 block = chunk; block < chunk_end; block += kPieceBlocks) {
        if (!visit(tile, block, least(kPieceBlocks, chunk_end - block))) return false;
      }
    }
    return true;
  }
};

// An attention split's past: runs of rows, k and v of a run in one stage each.
template <class Config>
struct PastPieces {
  static constexpr u32 kRowBytes = Config::kHeadStride * Config::kKvBytes;
  static constexpr u32 kRows = Config::kPastRows;

  u32 low;
  u32 high;

  // The same cut as amk/interpreter/semantics.py.
  __device__ PastPieces(const AttentionTask& task, u32 past) {
    const u32 first = past + 1 > task.window ? past + 1 - task.window : 0;
    const u32 seen = past - first;
    const u32 wanted = divide_up(seen, 256);
    const u32 active = wanted < 1 ? 1 : least(wanted, task.splits);
    const u32 each = divide_up(seen, active);
    low = first + least(seen, task.split * each);
    high = first + least(seen, (task.split + 1) * each);
  }
};

}  // namespace amk
