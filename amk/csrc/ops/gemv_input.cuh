// What a GEMV multiplies: columns of x, normed or merged, as bf16 pairs hi + lo in shared memory. A warp stages what it
// multiplies itself.
#pragma once

#include "ops/pairs.cuh"
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
  static constexpr bool kMerges = Shape::kPrologue == kPrologueMergeSplits;
  // Columns that a lane reads in one access; accesses that it makes before it uses the first, of x and of splits. Where
  // there are several rows, these are of several rows.
  static constexpr u32 kEach = 4;
  static constexpr u32 kLoads = Shape::kAligned ? 4 : 1;
  static constexpr u32 kSplits = kRows == 1 ? kLoads : 1;

  // This warp's blocks, at most: kShare of each piece.
  static constexpr u32 kBlocks = divide_up(kColumns, kTileColumns);
  static constexpr u32 kShare = divide_up(least(GemvPieces<Config>::kPieceBlocks, kBlocks), kWarps);
  static constexpr u32 kMine = kShare * divide_up(kBlocks, GemvPieces<Config>::kPieceBlocks);
  // Lanes that read a row, and blocks of it that they cover in one access. Of several rows, a warp that has few blocks
  // reads more than one at once.
  static constexpr u32 kRowLanes = least(kRows == 1 ? kWarp : power_above(kMine) * kTileColumns / kEach, kWarp);
  static constexpr u32 kAtOnce = kRowLanes * kEach / kTileColumns;
  static constexpr u32 kRowsAtOnce = kWarp / kRowLanes;

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
    // All of these are asked for before the first is used.
    constexpr u32 kRowLoads = least(divide_up(kRows, kRowsAtOnce), kMerges ? 4 : Shape::kTaggedX ? 2 : kRows);
    constexpr u32 kColumnLoads = kRows == 1 && !kMerges ? least(kLoads, divide_up(kMine, kAtOnce)) : 1;
    const u32 width = cut.in_chunk(chunk), pieces = divide_up(width, cut.piece_blocks);
    const u32 row = block.lane / kRowLanes, within = block.lane % (kTileColumns / kEach) * kEach;
    const u32 ahead = block.lane % kRowLanes / (kTileColumns / kEach);
#pragma unroll 1
    for (u32 base = row; base - row < rows; base += kRowLoads * kRowsAtOnce) {
      float sum[kRowLoads] = {};
#pragma unroll 1
      for (u32 done = 0; done < pieces * kShare; done += kColumnLoads * kAtOnce) {
        float4 value[kColumnLoads][kRowLoads] = {}, gain[kColumnLoads] = {};
#pragma unroll
        for (u32 j = 0; j < kColumnLoads; ++j) {
          const u32 at = block_of(done + j * kAtOnce + ahead, width), column = (chunk + at) * kTileColumns + within;
          if (kGain && at < width) gain[j] = constants(task.gain, column);
        }
        if constexpr (kMerges) {
          const u32 at = block_of(done + ahead, width), column = (chunk + at) * kTileColumns + within;
          merge_four(base, column, value[0]);
        } else {
          block.template await<Shape::kTaggedX>(head(), epoch, [&](u32& missing) {
#pragma unroll
            for (u32 j = 0; j < kColumnLoads; ++j) {
              const u32 at = block_of(done + j * kAtOnce + ahead, width), column = (chunk + at) * kTileColumns + within;
              // Anew: addresses kept from one try to the next would hold registers.
              if (at < width && column < kColumns) read(anew(base), column, value[j], missing);
            }
          });
        }
#pragma unroll
        for (u32 j = 0; j < kColumnLoads; ++j) {
          const u32 at = block_of(done + j * kAtOnce + ahead, width), column = (chunk + at) * kTileColumns + within;
          if (at >= width) continue;
#pragma unroll
          for (u32 i = 0; i < kRowLoads; ++i) {
            if (base + i * kRowsAtOnce >= rows) continue;
            const float4 x = value[j][i];
            if (Shape::kPrologue == kPrologueNorm) sum[i] += x.x * x.x + x.y * x.y + (x.z * x.z + x.w * x.w);
            put((base + i * kRowsAtOnce) * stride + at * kTileColumns + within,
                normed(base + i * kRowsAtOnce, column, x, gain[j]));
          }
        }
      }
      if (Shape::kPrologue == kPrologueNorm && first_time) {
#pragma unroll
        for (u32 i = 0; i < kRowLoads; ++i) add_squares(base + i * kRowsAtOnce, sum[i], chunk != 0);
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
  // This warp's blocks, in the order in which it multiplies them: kShare of each piece, not all of which are there.
  __device__ __forceinline__ u32 block_of(u32 number, u32 width) const {
    const u32 within = block.warp + number % kShare * kWarps;
    return within < cut.piece_blocks ? number / kShare * cut.piece_blocks + within : width;
  }

  // A task of one row has a place for its squares as it has for its sums.
  __device__ __forceinline__ float* squares_of(u32 row) const {
    return block.shared.squares[kRows == 1 ? block.half(head()) : row];
  }

  // The squares of a row, which the lanes that have read it add up.
  __device__ __forceinline__ void add_squares(u32 row, float sum, bool more) const {
    for (int mask = kRowLanes / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
    if (row >= rows || block.lane % kRowLanes != 0) return;
    float& to = squares_of(row)[block.warp];
    to = more ? to + sum : sum;
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

  // Four columns of x before any norm: of a row, and of those that lie kRowsAtOnce, and twice that, behind it.
  template <u32 kCount>
  __device__ __forceinline__ void read(u32 row, u32 column, float4 (&x)[kCount], u32& missing) const {
#pragma unroll
    for (u32 i = 0; i < kCount; ++i) {
      const u32 at = row + i * kRowsAtOnce;
      if (at < rows) {
        x[i] = four(X(task.x, epoch).from(static_cast<u64>(first + at) * task.x_stride), column, missing);
      }
    }
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
    *reinterpret_cast<uint4*>(staged + place) = pairs_of(x);
  }

  // Four columns of merged splits, zeros behind the last. Lanes merge together: those without a column merge the last
  // ones again.
  template <u32 kCount>
  __device__ __forceinline__ void merge_four(u32 row, u32 column, float4 (&x)[kCount]) const {
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

    __device__ __forceinline__ void ask(const GemvInput& input, u32 row, u32 column, const float2* stats, u32 base,
                                        u32 active) {
      const GemvTask& task = input.task;
#pragma unroll
      for (u32 j = 0; j < kSplits; ++j) {
        const u32 split = least(base + j, active - 1);
#pragma unroll
        for (u32 i = 0; i < kCount; ++i) {
          const u32 at = least(row + i * kRowsAtOnce, input.rows - 1);
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
