// What a GEMV multiplies: columns of x, normed or merged, in shared memory: as bf16 pairs hi + lo, or as digits where
// the weight is integers. A warp stages what it multiplies itself.
#pragma once

#include "ops/product.cuh"
#include "ops/splits.cuh"
#include "vm/block.cuh"
#include "vm/stream.cuh"
#include "vm/values.cuh"

namespace amk {

template <class Config, class Shape, u32 kRows>
struct GemvInput {
  static constexpr u32 kWarps = Config::kConsumerWarps;
  static constexpr u32 kThreads = kWarps * kWarp;
  static constexpr u32 kColumns = Shape::kColumns;
  static constexpr bool kGain = Shape::kPrologue == kPrologueNorm || Shape::kPrologue == kPrologueLayerNorm;
  static constexpr bool kMerges = Shape::kPrologue == kPrologueMergeSplits;
  // Columns that a lane reads in one access; accesses that it makes before it uses the first, of x and of splits. Where
  // there are several rows, these are of several rows.
  static constexpr u32 kEach = 4;
  static constexpr u32 kLoads = Shape::kAligned ? 4 : 1;

  // This warp's blocks of a chunk, at most: kShare of each piece.
  static constexpr u32 kBlockColumns = ProductOf<Shape>::kBlockColumns;
  static constexpr u32 kBlocks = divide_up(kColumns, kBlockColumns);
  static constexpr u32 kChunkBlocks = GemvPieces<Config>::blocks_staged(kBlocks, kRows, kBlockColumns);
  static constexpr u32 kPieceBlocks = GemvPieces<Config>::even_piece(kChunkBlocks);
  static constexpr u32 kShare = divide_up(kPieceBlocks, kWarps);
  static constexpr u32 kMine = kShare * divide_up(kChunkBlocks, kPieceBlocks);
  // Lanes that read a row, and blocks of it that they cover in one access. Of several rows, a warp that has few blocks
  // reads more than one at once.
  static constexpr u32 kBlockLanes = kBlockColumns / kEach;
  static constexpr u32 kRowLanes = least(kRows == 1 ? kWarp : power_above(kMine) * kBlockLanes, kWarp);
  static constexpr u32 kAtOnce = kRowLanes / kBlockLanes;
  static constexpr u32 kRowsAtOnce = kWarp / kRowLanes;
  using Product = amk::Product<Shape, kRows>;
  using X = Values<Shape::kTaggedX>;

  Block<Config>& block;
  const GemvTask& task;
  const u32 rows;
  const GemvPieces<Config> cut;
  const u64 from;    // task.x, of one row: of several it is read anew, for it would hold registers
  const u32 epoch;   // of words of x
  const u32 first;   // row of the step that is x's first
  const u32 stride;  // elements from one staged row to the next
  const Splits<Config, Shape, kRows, kRowsAtOnce> splits;
  float squares = 0.0f;  // of what this lane has read of the only row
  u32* const staged;     // [rows, stride]: of four columns, hi and lo of the first two, then of the others; or digits

  __device__ __forceinline__ GemvInput(Block<Config>& block, const GemvTask& task, u32 rows,
                                       const GemvPieces<Config>& cut)
      : block(block),
        task(task),
        rows(rows),
        cut(cut),
        from(task.x),
        epoch(block.epoch(task.x_epoch, task.x_epochs)),
        first(Shape::kLastRowOnly ? block.tokens - 1 : 0),
        stride(cut.chunk_blocks * kBlockColumns + kRowPad),
        splits(block, task, rows),
        staged(reinterpret_cast<u32*>(block.shared.work)) {}

  // What this lane has of the block that is `at` blocks into the chunk, if it is there; else zeros.
  __device__ __forceinline__ typename Product::Held held(u32 at, bool there) const {
    return Product::held(staged, stride, rows, block.lane, at, there);
  }

  // This warp's columns of a chunk; zeros behind the last one. Sums of squares for the norm are taken the first time.
  __device__ __forceinline__ void stage(u32 chunk, bool first_time) {
    // All of these are asked for before the first is used.
    constexpr u32 kRowLoads = least(divide_up(kRows, kRowsAtOnce), Shape::kQuantized ? 2
                                                                   : kMerges         ? 4
                                                                   : Shape::kTaggedX ? 2
                                                                                     : kRows);
    constexpr u32 kAll = divide_up(kMine, kAtOnce);
    constexpr u32 kColumnLoads = Shape::kQuantized ? kAll : kRows == 1 && !kMerges ? least(kLoads, kAll) : 1;
    const u32 width = cut.in_chunk(chunk), pieces = divide_up(width, cut.piece_blocks);
    const u32 row = kRows == 1 ? 0 : block.lane / kRowLanes, within = block.lane % kBlockLanes * kEach;
    const u32 ahead = block.lane % kRowLanes / kBlockLanes;
#pragma unroll 1
    for (u32 base = row; base - row < rows; base += kRowLoads * kRowsAtOnce) {
      float sum[kRowLoads] = {};
#pragma unroll 1
      for (u32 done = 0; done < pieces * kShare; done += kColumnLoads * kAtOnce) {
        float4 value[kColumnLoads][kRowLoads] = {}, gain[kColumnLoads] = {};
#pragma unroll
        for (u32 j = 0; j < kColumnLoads; ++j) {
          const u32 at = block_of(done + j * kAtOnce + ahead, width), column = (chunk + at) * kBlockColumns + within;
          if (kGain && at < width) gain[j] = constants(task.gain, column);
        }
        if constexpr (kMerges) {
#pragma unroll
          for (u32 j = 0; j < kColumnLoads; ++j) {
            const u32 at = block_of(done + j * kAtOnce + ahead, width);
            splits.four(base, (chunk + at) * kBlockColumns + within, value[j]);
          }
        } else {
          u32 waits = 1;  // this lane: columns that have come are not read again
          block.template await<Shape::kTaggedX, true>(head(), epoch, [&](u32& missing) {
            u32 absent = 0;
            if (waits == 0) return;
#pragma unroll
            for (u32 j = 0; j < kColumnLoads; ++j) {
              const u32 at = block_of(done + j * kAtOnce + ahead, width),
                        column = (chunk + at) * kBlockColumns + within;
              if constexpr (kRows == 1 && Shape::kAligned) {
                // A lane without columns reads the last ones, and goes on with the others: to branch takes longer.
                const u32 there = at < width ? least(column, kColumns - kEach) : kColumns - kEach;
                read(0, there, value[j], absent);
              } else if (at < width && column < kColumns) {
                // Anew: addresses kept from one try to the next would hold registers.
                read(anew(base), column, value[j], absent);
              }
            }
            missing = absent;
            waits = absent;
          });
        }
#pragma unroll
        for (u32 j = 0; j < kColumnLoads; ++j) {
          const u32 at = block_of(done + j * kAtOnce + ahead, width), column = (chunk + at) * kBlockColumns + within;
#pragma unroll
          for (u32 i = 0; i < kRowLoads; ++i) {
            const u32 in = base + i * kRowsAtOnce;
            float4& x = value[j][i];
            const bool there = at < width && in < rows;
            if (!there || column >= kColumns) x = {0.0f, 0.0f, 0.0f, 0.0f};
            if (kRows > 1 && !there) continue;
            if (Shape::kPrologue == kPrologueNorm) sum[i] += x.x * x.x + x.y * x.y + (x.z * x.z + x.w * x.w);
            x = normed(in, column, x, gain[j]);
            if (!Shape::kQuantized) put_pairs(in * stride + at * kBlockColumns + within, x, there);
          }
        }
        if constexpr (Shape::kQuantized) {
#pragma unroll
          for (u32 i = 0; i < kRowLoads; ++i) {
            u32 greatest = 0;
#pragma unroll
            for (u32 j = 0; j < kColumnLoads; ++j) greatest = larger(greatest, magnitude(value[j][i]));
            const Unit unit(greatest_of(greatest, kRowLanes));
            if (kRows > 1) block.identify();  // again: what follows from it would hold registers
            const u32 in = base + i * kRowsAtOnce;
            if (in < rows && block.lane % kRowLanes == 0) block.shared.units[in][block.warp] = unit.one;
#pragma unroll
            for (u32 j = 0; j < kColumnLoads; ++j) {
              const u32 at = block_of(done + j * kAtOnce + ahead, width);
              if (at < width && in < rows) put_digits(in * stride + at * kBlockColumns, within, value[j][i], unit.by);
            }
          }
        }
      }
      if (Shape::kPrologue != kPrologueNorm || !first_time) continue;
      if (kRows == 1) {
        squares += sum[0];
      } else {
#pragma unroll
        for (u32 i = 0; i < kRowLoads; ++i) add_squares(base + i * kRowsAtOnce, sum[i], chunk != 0);
      }
    }
    warp_sync();  // each lane reads what others of its warp have put
  }

  // This warp's squares of the only row. No product waits for them, only what stands behind the sums.
  __device__ __forceinline__ void add_squares() const {
    if (Shape::kPrologue == kPrologueNorm) add_squares(0, squares, false);
  }

  // What a digit of this warp's columns of a row is worth.
  __device__ __forceinline__ float unit(u32 row) const { return block.shared.units[row][block.warp]; }

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
        x[i] = four(X(kRows == 1 ? from : task.x, epoch).from(static_cast<u64>(first + at) * task.x_stride), column,
                    missing);
      }
    }
  }

  __device__ __forceinline__ float4 normed(u32 row, u32 column, float4 x, float4 gain) const {
    if (!kGain || (Shape::kPrologue == kPrologueLayerNorm && column >= kColumns)) return x;
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

  __device__ __forceinline__ void put_pairs(u32 place, float4 x, bool there) const {
    const uint4 pairs = Product::pairs(x);  // by name: ThreadSanitizer does not see a store of what a call returns
    if (there) *reinterpret_cast<uint4*>(staged + place) = pairs;
  }

  // A block's columns lie as lanes take them: sixteen neighbours; of these, a digit of all; of that, a word of four.
  __device__ __forceinline__ void put_digits(u32 place, u32 within, float4 x, float by) const {
    u32 words[kDigits];
    digits_of(x, by, words);
#pragma unroll
    for (u32 digit = 0; digit < kDigits; ++digit) {
      staged[place + within / 16 * 16 + digit * 4 + Product::place_of(within % 16 / 4)] = words[digit];
    }
  }
};

}  // namespace amk
