// What a GEMV multiplies: columns of x, normed or merged, as bf16 pairs hi + lo in shared memory. A warp stages what it
// multiplies itself.
#pragma once

#include "ops/pairs.cuh"
#include "vm/block.cuh"
#include "vm/stream.cuh"

namespace amk {

template <class Config, class Shape, u32 kRows>
struct GemvInput {
  static constexpr u32 kWarps = Config::kConsumerWarps;
  static constexpr u32 kThreads = kWarps * kWarp;
  static constexpr u32 kColumns = Shape::kColumns;
  static constexpr u32 kHeadDim = Config::kHeadDim;
  static constexpr bool kGain = Shape::kPrologue == kPrologueNorm || Shape::kPrologue == kPrologueLayerNorm;
  // Columns that a lane reads in one access; accesses that it makes before it uses the first, of x and of splits.
  static constexpr u32 kEach = 4;
  static constexpr u32 kLoads = Shape::kAligned ? 4 : 1;
  static constexpr u32 kSplits = kLoads;
  // Blocks of a warp that one access of all its lanes covers.
  static constexpr u32 kAtOnce = kWarp * kEach / kTileColumns;

  Block<Config>& block;
  const GemvTask& task;
  const u32 rows;
  const GemvPieces<Config> cut;
  const u32 first;    // row of the step that is x's first
  const u32 stride;   // elements from one staged row to the next
  u32* const staged;  // [rows, stride]: of four columns, hi and lo of the first two, then of the others
  float squares = 0.0f;

  __device__ __forceinline__ GemvInput(Block<Config>& block, const GemvTask& task, u32 rows,
                                       const GemvPieces<Config>& cut)
      : block(block),
        task(task),
        rows(rows),
        cut(cut),
        first(Shape::kLastRowOnly ? block.tokens - 1 : 0),
        stride(cut.chunk_blocks * kTileColumns + kRowPad),
        staged(reinterpret_cast<u32*>(block.shared.work)) {}

  // Of the block that is `at` blocks into the chunk: row lane / 4, eight columns from lane % 4 * 8 on. Behind the last
  // row, some row again: what is made of it goes unread.
  __device__ __forceinline__ Fragment fragment(u32 at) const {
    const u32 row = kRows == 1 ? 0 : least(block.lane / 4, rows - 1);
    const u32 place = row * stride + at * kTileColumns + block.lane % 4 * 8;
    const uint4* at_place = reinterpret_cast<const uint4*>(staged + place);
    return {at_place[0], at_place[1]};
  }

  // This warp's columns of a chunk; zeros behind the last one. Sums of squares for the norm are taken the first time.
  __device__ __forceinline__ void stage(u32 chunk, bool first_time) {
    constexpr bool kMerges = Shape::kPrologue == kPrologueMergeSplits;
    // All of these are asked for before the first is used.
    constexpr u32 kMost = divide_up(divide_up(divide_up(kColumns, kTileColumns), kWarps), kAtOnce);
    constexpr u32 kRowLoads = kRows == 1 || kMerges ? 1 : kLoads;
    constexpr u32 kColumnLoads = kRows == 1 && !kMerges ? least(kLoads, kMost) : 1;
    const u32 width = cut.in_chunk(chunk), pieces = divide_up(width, cut.piece_blocks);
    const u32 ahead = block.lane / (kTileColumns / kEach), within = block.lane % (kTileColumns / kEach) * kEach;
#pragma unroll 1
    for (u32 base = 0; base < rows; base += kRowLoads) {
      float sum[kRowLoads] = {};
#pragma unroll 1
      for (u32 done = 0; done < pieces * kShare; done += kColumnLoads * kAtOnce) {
        float4 value[kRowLoads][kColumnLoads], gain[kColumnLoads];
#pragma unroll
        for (u32 j = 0; j < kColumnLoads; ++j) {
          const u32 at = block_of(done + j * kAtOnce + ahead, width), column = (chunk + at) * kTileColumns + within;
          const bool there = at < width && column < kColumns;
#pragma unroll
          for (u32 i = 0; i < kRowLoads; ++i) {
            value[i][j] = there && base + i < rows ? raw(first + base + i, column) : float4{0.0f, 0.0f, 0.0f, 0.0f};
          }
          gain[j] =
              kGain && there ? four(reinterpret_cast<const float*>(task.gain), column) : float4{0.0f, 0.0f, 0.0f, 0.0f};
        }
#pragma unroll
        for (u32 j = 0; j < kColumnLoads; ++j) {
          const u32 at = block_of(done + j * kAtOnce + ahead, width), column = (chunk + at) * kTileColumns + within;
          if (at >= width) continue;
#pragma unroll
          for (u32 i = 0; i < kRowLoads; ++i) {
            if (base + i >= rows) continue;
            const float4 x = value[i][j];
            if (Shape::kPrologue == kPrologueNorm) sum[i] += x.x * x.x + x.y * x.y + (x.z * x.z + x.w * x.w);
            put((base + i) * stride + at * kTileColumns + within, normed(base + i, column, x, gain[j]));
          }
        }
      }
      if (Shape::kPrologue == kPrologueNorm && first_time) {
        if (kRows == 1) {
          squares += sum[0];
        } else {
#pragma unroll
          for (u32 i = 0; i < kRowLoads; ++i) {
            if (base + i < rows) add_squares(base + i, sum[i], chunk != 0);
          }
        }
      }
    }
    warp_sync();  // each lane reads what others of its warp have put
  }

  // Of a single row: its squares, kept in registers until they are not in the way.
  __device__ __forceinline__ void put_squares() {
    if (kRows == 1 && Shape::kPrologue == kPrologueNorm) add_squares(0, squares, false);
  }

  // 1 / sqrt(mean(x^2) + eps) of a row, of what the warps added up while they staged it. It multiplies behind the dot
  // product, which is linear, so nothing waits for it.
  __device__ __forceinline__ float norm_scale(u32 row) const {
    return inverse_root(sum_of<kWarps>(block.shared.squares[row]) * (1.0f / kColumns) + task.eps);
  }

  // Mean and 1 / sqrt(variance + eps) of each row, in two passes; they are needed before the dot product.
  __device__ __forceinline__ bool layer_norm() {
#pragma unroll 1
    for (u32 row = 0; row < rows; ++row) {
      float mean = 0.0f;
#pragma unroll 1
      for (int pass = 0; pass < 2; ++pass) {
        const float* x = reinterpret_cast<const float*>(task.x) + (first + row) * task.x_stride;
        float sum = 0.0f;
        for (u32 column = block.thread; column < kColumns; column += kThreads) {
          const float value = x[column] - mean;
          sum += pass == 0 ? value : value * value;
        }
        const float total = block.sum(sum) * (1.0f / kColumns);
        if (pass == 0) {
          mean = total;
        } else if (block.thread == 0) {
          block.shared.shift[row] = mean;
          block.shared.scale[row] = inverse_root(total + task.eps);
        }
      }
    }
    return block.meet();
  }

 private:
  static constexpr u32 kShare =
      divide_up(least(GemvPieces<Config>::kPieceBlocks, divide_up(kColumns, kTileColumns)), kWarps);

  // This warp's blocks, in the order in which it multiplies them: kShare of each piece, not all of which are there.
  __device__ __forceinline__ u32 block_of(u32 number, u32 width) const {
    const u32 within = block.warp + number % kShare * kWarps;
    return within < cut.piece_blocks ? number / kShare * cut.piece_blocks + within : width;
  }

  __device__ __forceinline__ void add_squares(u32 row, float sum, bool more) const {
    const float all = warp_sum(sum);
    float& to = block.shared.squares[row][block.warp];
    if (block.lane == 0) to = more ? to + all : all;
  }

  // Four columns; those behind the last are zero.
  __device__ __forceinline__ static float4 four(const float* row, u32 column) {
    if constexpr (Shape::kAligned) {
      return load_four(row + column);
    } else {
      return {at(row, column), at(row, column + 1), at(row, column + 2), at(row, column + 3)};
    }
  }

  __device__ __forceinline__ static float at(const float* row, u32 column) {
    return column < kColumns ? row[column] : 0.0f;
  }

  // Four columns of x before any norm.
  __device__ __forceinline__ float4 raw(u32 row, u32 column) const {
    if constexpr (Shape::kPrologue != kPrologueMergeSplits) {
      return four(reinterpret_cast<const float*>(task.x) + row * task.x_stride, column);
    } else if constexpr (Shape::kAligned) {
      return merged(row, column);
    } else {
      return {merged_at(row, column), merged_at(row, column + 1), merged_at(row, column + 2),
              merged_at(row, column + 3)};
    }
  }

  __device__ __forceinline__ float merged_at(u32 row, u32 column) const {
    return column < kColumns ? merged(row, column).x : 0.0f;
  }

  __device__ __forceinline__ float4 normed(u32 row, u32 column, float4 x, float4 gain) const {
    if (!kGain || column >= kColumns) return x;
    if (Shape::kPrologue == kPrologueLayerNorm) {
      const float shift = block.shared.shift[row], scale = block.shared.scale[row];
      x = {(x.x - shift) * scale, (x.y - shift) * scale, (x.z - shift) * scale, (x.w - shift) * scale};
    }
    x = {x.x * gain.x, x.y * gain.y, x.z * gain.z, x.w * gain.w};
    if (Shape::kPrologue == kPrologueLayerNorm && task.shift != 0) {
      const float4 shift = four(reinterpret_cast<const float*>(task.shift), column);
      x = {x.x + shift.x, x.y + shift.y, x.z + shift.z, x.w + shift.w};
    }
    return x;
  }

  __device__ __forceinline__ void put(u32 place, float4 x) const {
    *reinterpret_cast<uint4*>(staged + place) = pairs_of(x);
  }

  // Partial attention results of four columns of one head (or of the first alone, where they are not aligned), merged
  // in split order. A window lets fewer splits be active than the position has it; those have written that they are
  // empty.
  __device__ __forceinline__ float4 merged(u32 row, u32 column) const {
    const u32 active = PastPieces<Config>::active(block.pos, task.splits);
    const u32 head = column / kHeadDim, stat_stride = Config::kTokensMax * task.heads * 2;
    const float* part = reinterpret_cast<const float*>(task.x) + row * task.x_stride + column;
    const float* stat = reinterpret_cast<const float*>(task.stats) + (row * task.heads + head) * 2;
    float4 value = {0.0f, 0.0f, 0.0f, 0.0f};
    float top = minus_infinity(), total = 0.0f;
#pragma unroll 1
    for (u32 base = 0; base < active; base += kSplits) {
      float4 parts[kSplits];
      float2 stats[kSplits];
#pragma unroll
      for (u32 i = 0; i < kSplits; ++i) {
        const u32 split = least(base + i, active - 1);
        stats[i] = *reinterpret_cast<const float2*>(stat + split * stat_stride);
        if constexpr (Shape::kAligned) {
          parts[i] = load_four(part + split * task.split_stride);
        } else {
          parts[i] = {part[split * task.split_stride], 0.0f, 0.0f, 0.0f};
        }
      }
#pragma unroll
      for (u32 i = 0; i < kSplits; ++i) {
        if (base + i >= active) continue;
        // The first split holds the step's own row, so its maximum is finite.
        const float most = fmaxf(top, stats[i].x);
        const float before = exp2_of((top - most) * kLog2E), here = exp2_of((stats[i].x - most) * kLog2E);
        value = {value.x * before + parts[i].x * here, value.y * before + parts[i].y * here,
                 value.z * before + parts[i].z * here, value.w * before + parts[i].w * here};
        total = total * before + stats[i].y * here;
        top = most;
      }
    }
    const float share = quotient(1.0f, total);
    return {value.x * share, value.y * share, value.z * share, value.w * share};
  }
};

}  // namespace amk
