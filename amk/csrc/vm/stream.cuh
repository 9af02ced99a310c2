// The pieces in which a task's data comes through the ring. The producer copies them in this order, the consumers take
// them in this order, and both know it from the task alone.
#pragma once

#include "vm/shared.cuh"

namespace amk {

__device__ constexpr u32 divide_up(u32 a, u32 b) { return (a + b - 1) / b; }
__device__ constexpr u32 least(u32 a, u32 b) { return a < b ? a : b; }
__device__ constexpr u32 greatest(u32 a, u32 b) { return a < b ? b : a; }
__device__ constexpr int power_above(int value) {
  int power = 1;
  while (power < value) power *= 2;
  return power;
}

template <bool kFirst, class First, class Second>
struct Chosen {
  using Type = First;
};
template <class First, class Second>
struct Chosen<false, First, Second> {
  using Type = Second;
};

// A place in a ring of `kStages` stages, and the phase of its barriers. Kept as it goes, not computed from a count: the
// count of a long launch may wrap, and 2^32 need not be a multiple of the stages. In one word, for registers are dear.
template <u32 kStages>
struct Cursor {
  u32 place = 0;

  __device__ __forceinline__ u32 stage() const { return place / 2; }
  __device__ __forceinline__ u32 parity() const { return place % 2; }
  __device__ __forceinline__ void advance() {
    place += 2;
    if (place >= 2 * kStages) place = place % 2 ^ 1;
  }
};

// A GEMV's weights: groups of tiles, as many as the block keeps sums of; of a group, chunks of columns, as many as it
// stages. A piece is whole tiles where a stage holds several, else a part of one. It is cut for one row of x, or for as
// many as a step may have, whatever the step has.
template <class Config>
struct GemvPieces {
  static constexpr u32 kPieceBlocks = Config::kStageBytes / kBlockBytes;

  u32 tiles;
  u32 blocks;        // in a whole row of tiles
  u32 chunk_blocks;  // whose columns are staged at once
  u32 piece_blocks;  // of one tile
  u32 piece_tiles;
  u32 group_tiles;

  // A block has so many columns.
  __device__ constexpr GemvPieces(u32 weight_rows, u32 k, u32 rows, u32 block_columns)
      : tiles(divide_up(weight_rows, kTileRows)),
        blocks(divide_up(k, block_columns)),
        chunk_blocks(blocks_staged(blocks, rows, block_columns)),
        piece_blocks(even_piece(chunk_blocks)),
        piece_tiles(chunk_blocks < blocks ? 1 : least(kPieceBlocks / piece_blocks, tiles_summed(rows))),
        group_tiles(tiles_summed(rows) / piece_tiles * piece_tiles) {}

  // Columns of `rows` rows that fit the work area; of a row of so many blocks, those that are staged at once.
  __device__ static constexpr u32 columns_staged(u32 rows) { return Config::kWorkBytes / (rows * 4) - kRowPad; }
  __device__ static constexpr u32 blocks_staged(u32 blocks, u32 rows, u32 block_columns) {
    return least(blocks, whole_pieces(columns_staged(rows) / block_columns));
  }
  // Blocks of a piece where so many are staged: as few pieces as there can be, and these alike.
  __device__ static constexpr u32 even_piece(u32 staged) { return divide_up(staged, divide_up(staged, kPieceBlocks)); }
  __device__ static constexpr u32 whole_pieces(u32 some) {
    return some < kPieceBlocks ? some : some / kPieceBlocks * kPieceBlocks;
  }
  __device__ static constexpr u32 tiles_summed(u32 rows) {
    return Shared<Config>::kSums / (rows == 1 ? 2 : 1) / (rows * kTileRows * Shared<Config>::kWarpsUp);
  }

  __device__ constexpr bool whole() const { return chunk_blocks == blocks; }
  __device__ constexpr u32 in_group(u32 first_tile) const { return least(group_tiles, tiles - first_tile); }
  __device__ constexpr u32 in_chunk(u32 chunk) const { return least(chunk_blocks, blocks - chunk); }
};

// An attention split's past: runs of rows; of a run, the pieces of k, then those of v. A step of several rows takes
// fewer rows at once: its runs have one piece of each; as does a step of one whose past is no longer than that.
template <class Config>
struct PastPieces {
  static constexpr u32 kRowBytes = Config::kHeadStride * Config::kKvBytes;
  static constexpr u32 kRows = Config::kPastRows;  // of a piece
  // Rows whose values are one right operand of the tensor core: of fp32 half as many, as hi and lo.
  static constexpr u32 kStripRows = Config::kKvBytes == 4 ? 8 : 16;
  static constexpr u32 kStripsRows = least((Config::kRunStrips > 1 ? Config::kRunStrips - 1 : 1) * kStripRows, kRows);
  static constexpr u32 kRowsPerSplit = 64;  // amk/ir/attention.py

  u32 low;
  u32 high;

  __device__ __forceinline__ static u32 run_rows(u32 tokens) { return tokens == 1 ? Config::kRunRows : kStripsRows; }

  // Splits that a past of so many rows is cut into.
  __device__ __forceinline__ static u32 active(u32 seen, u32 splits) {
    return greatest(1, least(divide_up(seen, kRowsPerSplit), splits));
  }

  // The same cut as amk/interpreter/semantics.py.
  __device__ __forceinline__ PastPieces(const AttentionTask& task, u32 past) {
    const u32 first = past + 1 > task.window ? past + 1 - task.window : 0;
    const u32 seen = past - first;
    const u32 each = divide_up(seen, active(seen, task.splits));
    low = first + least(seen, task.split * each);
    high = first + least(seen, (task.split + 1) * each);
  }
};

}  // namespace amk
