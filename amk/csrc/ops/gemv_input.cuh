// What a GEMV multiplies: columns of x, normed or merged, as bf16 pairs hi + lo in shared memory. A warp stages what it
// multiplies itself.
#pragma once

#include "vm/block.cuh"
#include "vm/stream.cuh"
#include "vm/values.cuh"

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

  using X = Values<Shape::kTaggedX>;

  Block<Config>& block;
  const GemvTask& task;
  const u32 rows;
  const GemvPieces<Config> cut;
  const u32 epoch;    // of words of x
  const u32 first;    // row of the step that is x's first
  const u32 stride;   // elements from one staged row to the next
  u32* const staged;  // [rows, stride]: of four columns, hi and lo of the first two, then of the others

  __device__ __forceinline__ GemvInput(Block<Config>& block, const GemvTask& task, u32 rows,
                                       const GemvPieces<Config>& cut)
      : block(block),
        task(task),
        rows(rows),
        cut(cut),
        epoch(block.epoch(task.x_epoch, task.x_epochs)),
        first(Shape::kLastRowOnly ? block.tokens - 1 : 0),
        stride(cut.chunk_blocks * kTileColumns + kRowPad),
        staged(reinterpret_cast<u32*>(block.shared.work)) {}

  // A block's columns of x as the tensor core takes them, for two products: row lane / 4, eight columns from
  // lane % 4 * 8 on.
  struct Fragment {
    uint4 first;
    uint4 second;
  };

  // Of the block that is `at` blocks into the chunk. Behind the last row, some row again: what is made of it goes
  // unread.
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
    constexpr u32 kRowLoads = kRows == 1 || kMerges ? 1 : Shape::kTaggedX ? 2 : kLoads;
    constexpr u32 kColumnLoads = kRows == 1 && !kMerges ? least(kLoads, kMost) : 1;
    const u32 width = cut.in_chunk(chunk), pieces = divide_up(width, cut.piece_blocks);
    const u32 ahead = block.lane / (kTileColumns / kEach), within = block.lane % (kTileColumns / kEach) * kEach;
#pragma unroll 1
    for (u32 base = 0; base < rows; base += kRowLoads) {
      float sum[kRowLoads] = {};
#pragma unroll 1
      for (u32 done = 0; done < pieces * kShare; done += kColumnLoads * kAtOnce) {
        float4 value[kRowLoads][kColumnLoads] = {}, gain[kColumnLoads];
#pragma unroll
        for (u32 j = 0; j < kColumnLoads; ++j) {
          const u32 at = block_of(done + j * kAtOnce + ahead, width), column = (chunk + at) * kTileColumns + within;
          gain[j] = kGain && at < width ? constants(task.gain, column) : float4{0.0f, 0.0f, 0.0f, 0.0f};
        }
        const auto ask = [&](u32& missing) {
#pragma unroll
          for (u32 j = 0; j < kColumnLoads; ++j) {
            const u32 at = block_of(done + j * kAtOnce + ahead, width), column = (chunk + at) * kTileColumns + within;
            if (at >= width || column >= kColumns) continue;
#pragma unroll
            for (u32 i = 0; i < kRowLoads; ++i) {
              const X row = X(task.x, epoch).from(static_cast<u64>(first + base + i) * task.x_stride);
              if (base + i < rows) value[i][j] = four(row, column, missing);
            }
          }
        };
        if constexpr (kMerges) {
          const u32 at = block_of(done + ahead, width), column = (chunk + at) * kTileColumns + within;
          // Lanes merge together: those without a column merge the last again.
          value[0][0] = raw(first + base, least(column, kColumns - (Shape::kAligned ? kEach : 1)));
          if (column >= kColumns) value[0][0] = {};
        } else {
          block.template await<Shape::kTaggedX>(head(), epoch, ask);
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
#pragma unroll
        for (u32 i = 0; i < kRowLoads; ++i) {
          if (base + i < rows) add_squares(base + i, sum[i], chunk != 0);
        }
      }
    }
    warp_sync();  // each lane reads what others of its warp have put
  }

  // 1 / sqrt(mean(x^2) + eps) of a row, of what the warps added up while they staged it. It multiplies behind the dot
  // product, which is linear, so nothing waits for it.
  __device__ __forceinline__ float norm_scale(u32 row) const {
    return inverse_root(sum_of<kWarps>(squares_of(row)) * (1.0f / kColumns) + task.eps);
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

  // Those of a single row take as many places in turn as its sums do.
  __device__ __forceinline__ float* squares_of(u32 row) const {
    return block.shared.squares[kRows == 1 ? block.half(head()) : row];
  }

  __device__ __forceinline__ void add_squares(u32 row, float sum, bool more) const {
    const float all = warp_sum(sum);
    float& to = squares_of(row)[block.warp];
    if (block.lane == 0) to = more ? to + all : all;
  }

  __device__ __forceinline__ const TaskHead& head() const { return reinterpret_cast<const TaskHead&>(task); }

  // Four columns of a row; those behind the last are zero.
  template <class Row>
  __device__ __forceinline__ static float4 four(const Row& row, u32 column, u32& missing) {
    if constexpr (Shape::kAligned) {
      return row.get_four(column, missing);
    } else {
      return {at(row, column, missing), at(row, column + 1, missing), at(row, column + 2, missing),
              at(row, column + 3, missing)};
    }
  }

  template <class Row>
  __device__ __forceinline__ static float at(const Row& row, u32 column, u32& missing) {
    return column < kColumns ? row.get(column, missing) : 0.0f;
  }

  // Of what no task writes.
  __device__ __forceinline__ static float4 constants(u64 address, u32 column) {
    u32 missing = 0;
    return column < kColumns ? four(Values<false>(address, 0), column, missing) : float4{0.0f, 0.0f, 0.0f, 0.0f};
  }

  // Four columns of merged splits.
  __device__ __forceinline__ float4 raw(u32 row, u32 column) const {
    if constexpr (Shape::kAligned) {
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
      const float4 shift = constants(task.shift, column);
      x = {x.x + shift.x, x.y + shift.y, x.z + shift.z, x.w + shift.w};
    }
    return x;
  }

  __device__ __forceinline__ void put(u32 place, float4 x) const {
    const u32 high = to_bf16x2(x.x, x.y), higher = to_bf16x2(x.z, x.w);
    const u32 low = to_bf16x2(x.x - from_bf16(high & 0xffffu), x.y - from_bf16(high >> 16));
    const u32 lower = to_bf16x2(x.z - from_bf16(higher & 0xffffu), x.w - from_bf16(higher >> 16));
    *reinterpret_cast<uint4*>(staged + place) = uint4{high, low, higher, lower};
  }

  // Partial attention results of four columns of one head (or of the first alone, where they are not aligned), merged
  // in split order under the greatest maximum of all.
  __device__ __forceinline__ float4 merged(u32 row, u32 column) const {
    const u32 active = PastPieces<Config>::active(block.pos, task.splits);
    const u32 stride = Config::kTokensMax * task.heads;  // from one split's statistics to the next
    const float* part = reinterpret_cast<const float*>(task.x) + static_cast<u64>(row) * task.x_stride + column;
    const float2* stat = reinterpret_cast<const float2*>(task.stats) + row * task.heads + column / kHeadDim;
    const Statistics all = statistics(stat, stride, active);
    const float share = quotient(1.0f, all.total);
    float4 value = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
    for (u32 base = 0; base < active; base += kSplits) {
      float4 parts[kSplits];
      float top[kSplits];
#pragma unroll
      for (u32 i = 0; i < kSplits; ++i) {
        const u32 split = least(base + i, active - 1);
        top[i] = stat[split * stride].x;
        parts[i] = Shape::kAligned ? load_four(part + split * task.split_stride)
                                   : float4{part[split * task.split_stride], 0.0f, 0.0f, 0.0f};
      }
#pragma unroll
      for (u32 i = 0; i < kSplits; ++i) {
        const float weight = base + i < active ? exp2_of((top[i] - all.top) * kLog2E) * share : 0.0f;
        value = {value.x + parts[i].x * weight, value.y + parts[i].y * weight, value.z + parts[i].z * weight,
                 value.w + parts[i].w * weight};
      }
    }
    return value;
  }

  // The greatest maximum of a head's splits, and their sums under it.
  struct Statistics {
    float top = minus_infinity();
    float total = 0.0f;

    // The first split holds the step's own row, so where both are nothing yet, nothing is made of it.
    __device__ __forceinline__ void add(float other_top, float other_total) {
      const float most = fmaxf(top, other_top);
      if (most == minus_infinity()) return;
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

  // A window lets fewer splits be active than the position has it; those have written that they are empty.
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
