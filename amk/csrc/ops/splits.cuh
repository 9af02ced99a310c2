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
  // Accesses that a lane makes before it uses the first; where there are several rows, these are of several rows.
  static constexpr u32 kSplits = kRows == 1 && Shape::kAligned ? 4 : 1;

  Block<Config>& block;
  const GemvTask& task;
  const u32 rows;

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
  // in split order under the greatest maximum of all. Behind the last row, that again.
  template <u32 kCount>
  __device__ __forceinline__ void merge(u32 row, u32 column, float4 (&value)[kCount]) const {
    const u32 active = PastPieces<Config>::active(block.pos, task.splits);
    const u32 stride = Config::kTokensMax * task.heads;  // from one split's statistics to the next
    const float2* const stats = reinterpret_cast<const float2*>(task.stats) + column / kHeadDim;
    Parts<kCount> parts;
    parts.ask(*this, row, column, stats, 0, active);  // before the statistics have come
    Statistics all[kCount];
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) {
      all[i] = statistics(stats + least(row + i * kRowsAtOnce, rows - 1) * task.heads, stride, active);
      all[i].total = quotient(1.0f, all[i].total);
      value[i] = {0.0f, 0.0f, 0.0f, 0.0f};
    }
#pragma unroll 1
    for (u32 base = 0;;) {
#pragma unroll
      for (u32 j = 0; j < kSplits; ++j) {
#pragma unroll
        for (u32 i = 0; i < kCount; ++i) {
          const float weight = exp2_of((parts.top[j][i] - all[i].top) * kLog2E) * all[i].total;
          const float by = base + j < active ? weight : 0.0f;
          const float4 old = value[i], more = parts.of[j][i];
          value[i] = {old.x + more.x * by, old.y + more.y * by, old.z + more.z * by, old.w + more.w * by};
        }
      }
      base += kSplits;
      if (base >= active) break;
      parts.ask(*this, row, column, stats, base, active);
    }
  }

  // Columns of some splits, and the maxima of these. Behind the last split, that again.
  template <u32 kCount>
  struct Parts {
    float4 of[kSplits][kCount];
    float top[kSplits][kCount];

    __device__ __forceinline__ void ask(const Splits& splits, u32 row, u32 column, const float2* stats, u32 base,
                                        u32 active) {
      const GemvTask& task = splits.task;
#pragma unroll
      for (u32 j = 0; j < kSplits; ++j) {
        const u32 split = least(base + j, active - 1);
#pragma unroll
        for (u32 i = 0; i < kCount; ++i) {
          const u32 at = least(row + i * kRowsAtOnce, splits.rows - 1);
          const float* part = reinterpret_cast<const float*>(task.x) + at * task.x_stride + column;
          top[j][i] = stats[(split * Config::kTokensMax + at) * task.heads].x;
          if constexpr (Shape::kAligned) {
            of[j][i] = load_four(part + split * task.split_stride);
          } else {
            of[j][i] = {part[split * task.split_stride], 0.0f, 0.0f, 0.0f};
          }
        }
      }
    }
  };

  // The greatest maximum of a head's splits, and their sums under it.
  struct Statistics {
    float top = minus_infinity();
    float total = 0.0f;

    __device__ __forceinline__ void add(float other_top, float other_total) {
      const float most = fmaxf(top, other_top);
      if (most == minus_infinity()) return;  // of nothing and nothing
      total = total * exp2_of((top - most) * kLog2E) + other_total * exp2_of((other_top - most) * kLog2E);
      top = most;
    }
  };

  // Lanes that merge columns of the same head: each looks at some of its splits.
  static constexpr u32 kHeadLanes = !Shape::kAligned     ? 1
                                    : kHeadDim % 32 == 0 ? 8
                                    : kHeadDim % 16 == 0 ? 4
                                    : kHeadDim % 8 == 0  ? 2
                                                         : 1;

  // A window lets fewer splits be active than the position has it; those have written that they are empty. The first
  // split holds the step's own row, so the greatest maximum is finite.
  __device__ __forceinline__ Statistics statistics(const float2* stat, u32 stride, u32 active) const {
    Statistics found;
#pragma unroll 1
    for (u32 base = 0; base < active; base += kHeadLanes) {
      const u32 split = base + block.lane % kHeadLanes;
      const float2 its = split < active ? stat[split * stride] : float2{minus_infinity(), 0.0f};
      found.add(its.x, its.y);
    }
#pragma unroll
    for (u32 mask = 1; mask < kHeadLanes; mask *= 2) {
      const float top = shuffle_xor(found.top, mask), total = shuffle_xor(found.total, mask);
      found.add(top, total);
    }
    return found;
  }
};

}  // namespace amk
