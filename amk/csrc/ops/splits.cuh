// Attention's results where they are split: partial ones of each run of the past, merged while they are staged.
#pragma once

#include "prim/number.cuh"
#include "vm/block.cuh"
#include "vm/stream.cuh"

namespace amk {

template <class Config, class Shape, u32 kRows, u32 kRowsAtOnce>
struct Splits {
  static constexpr u32 kColumns = Shape::kColumns;
  static constexpr u32 kHeadDim = Config::kHeadDim;
  static constexpr u32 kEach = 4;  // columns that a lane reads in one access
  // Splits that a lane reads before it uses the first. Where there are several rows, these are of several rows.
  static constexpr u32 kSplits = kRows == 1 && Shape::kAligned ? 4 : 1;

  Block<Config>& block;
  const GemvTask& task;
  const u32 rows;
  // Of the task, before anything of it is waited for.
  const u32 active;    // splits
  const u64 parts_at;  // of the first split, and its statistics
  const u64 stats_at;
  const u32 split_stride;  // from one split's part to the next
  const u32 stat_stride;

  __device__ __forceinline__ Splits(Block<Config>& block, const GemvTask& task, u32 rows)
      : block(block),
        task(task),
        rows(rows),
        active(PastPieces<Config>::active(block.pos, task.splits)),
        parts_at(task.x),
        stats_at(task.stats),
        split_stride(task.split_stride),
        stat_stride(Config::kTokensMax * task.heads) {}

  // Four columns of merged splits, zeros behind the last. Lanes merge together: those without a column merge the last
  // ones again.
  template <u32 kCount>
  __device__ __forceinline__ void four(u32 row, u32 column, float4 (&x)[kCount]) const {
    if constexpr (Shape::kAligned) {
      merge(row, least(column, kColumns - kEach), x);
    } else {
      float4 one[kEach][kCount] = {};
#pragma unroll
      for (u32 i = 0; i < kEach; ++i) merge(row, least(column + i, kColumns - 1), one[i]);
#pragma unroll
      for (u32 i = 0; i < kCount; ++i) {
        x[i] = {one[0][i].x, column + 1 < kColumns ? one[1][i].x : 0.0f, column + 2 < kColumns ? one[2][i].x : 0.0f,
                column + 3 < kColumns ? one[3][i].x : 0.0f};
      }
    }
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) {
      if (column >= kColumns) x[i] = {0.0f, 0.0f, 0.0f, 0.0f};
    }
  }

 private:
  // Partial attention results of four columns of one head (or of the first alone, where they are not aligned), merged
  // in split order, some at a time, under the greatest maximum so far. Behind the last row, that again. A window lets
  // fewer splits be active than the position has it; those have written that they are empty. The first split holds the
  // step's own row, so the greatest maximum is finite.
  template <u32 kCount>
  __device__ __forceinline__ void merge(u32 row, u32 column, float4 (&value)[kCount]) const {
    float top[kCount], total[kCount] = {};
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) {
      top[i] = minus_infinity();
      value[i] = {0.0f, 0.0f, 0.0f, 0.0f};
    }
#pragma unroll 1
    for (u32 base = 0; base < active; base += kSplits) {
      const Parts<kCount> parts(*this, row, column, base);
#pragma unroll
      for (u32 i = 0; i < kCount; ++i) {
        float most = top[i];
#pragma unroll
        for (u32 j = 0; j < kSplits; ++j) most = fmaxf(most, parts.stat[j][i].x);
        const float shrink = exp2_of((top[i] - most) * kLog2E);
        top[i] = most;
        total[i] *= shrink;
        value[i] = {value[i].x * shrink, value[i].y * shrink, value[i].z * shrink, value[i].w * shrink};
#pragma unroll
        for (u32 j = 0; j < kSplits; ++j) {
          const float weight = exp2_of((parts.stat[j][i].x - most) * kLog2E), by = base + j < active ? weight : 0.0f;
          const float4 old = value[i], more = parts.of[j][i];
          total[i] += parts.stat[j][i].y * by;
          value[i] = {old.x + more.x * by, old.y + more.y * by, old.z + more.z * by, old.w + more.w * by};
        }
      }
    }
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) {
      const float by = quotient(1.0f, total[i]);
      value[i] = {value[i].x * by, value[i].y * by, value[i].z * by, value[i].w * by};
    }
  }

  // Columns of some splits, and the maxima and sums of these. Behind the last split, that again.
  template <u32 kCount>
  struct Parts {
    float4 of[kSplits][kCount];
    float2 stat[kSplits][kCount];

    __device__ __forceinline__ Parts(const Splits& splits, u32 row, u32 column, u32 base) {
      const float2* const stats = reinterpret_cast<const float2*>(splits.stats_at) + column / kHeadDim;
#pragma unroll
      for (u32 j = 0; j < kSplits; ++j) {
        const u32 split = least(base + j, splits.active - 1);
#pragma unroll
        for (u32 i = 0; i < kCount; ++i) {
          const u32 at = least(row + i * kRowsAtOnce, splits.rows - 1);
          const float* part = reinterpret_cast<const float*>(splits.parts_at) + split * splits.split_stride +
                              at * splits.task.x_stride + column;
          stat[j][i] = stats[split * splits.stat_stride + at * splits.task.heads];
          if constexpr (Shape::kAligned) {
            of[j][i] = load_four(part);
          } else {
            of[j][i] = {*part, 0.0f, 0.0f, 0.0f};
          }
        }
      }
    }
  };
};

}  // namespace amk
