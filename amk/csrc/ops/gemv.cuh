// gemv: rows of a weight matrix times the step's rows, by tensor core, with what stands before and behind it fused in.
//
// Each consumer warp multiplies the column blocks that are its own (every kWarps-th), stages the columns of x that
// these need, and shares nothing with other warps until their sums are added. So a task has a meeting before the sums,
// and one behind its waits, if it has any: tagged words are waited for by those who multiply them.
#pragma once

#include "ops/best.cuh"
#include "ops/gemv_input.cuh"
#include "prim/mma.cuh"

namespace amk {

// `kRows` rows of x at most: one, or as many as a step may have. The task is cut for so many.
template <class Config, class Shape, u32 kRows>
struct GemvOp {
  static constexpr u32 kWarps = Config::kConsumerWarps;
  static constexpr u32 kThreads = kWarps * kWarp;
  static constexpr u32 kPitch = Shared<Config>::kSumPitch;
  static constexpr u32 kOutputs = kRows * kTileRows;  // of a tile, those of rows that are not there among them
  // Of the outputs of a group no thread has two.
  static constexpr bool kOneEach = Shared<Config>::kSums / kPitch <= kThreads;
  using Input = GemvInput<Config, Shape, kRows>;
  static constexpr u32 kShare = Input::kShare;

  // Of a row that is staged whole and cut into few blocks, a warp holds its own in registers.
  static constexpr u32 kPieces = Input::kMine / kShare;
  static constexpr bool kGrouped = Shape::kGroupColumns != 0;
  static constexpr bool kHeld = kRows == 1 && !kGrouped && Input::kMine <= 4 && Input::kChunkBlocks == Input::kBlocks;

  // Sums of a tile that a lane has: of bf16 two, so that one product need not wait for another; of integers too in a
  // step of one row, else one of each product. Those of groups of columns are no integers: each has its scale.
  static constexpr u32 kTerms = Shape::kQuantized && kRows > 1 ? Input::kProducts : 2;
  using Sum = typename Chosen<Shape::kQuantized && !kGrouped, int, float>::Type;
  using Sums = Sum (&)[kTerms][4];

  Block<Config>& block;
  const GemvTask& task;
  const u32 rows;  // of x in this step
  const GemvPieces<Config> cut;
  Input input;
  typename Input::Held held[kHeld ? Input::kMine : 1];
  float best = minus_infinity();
  int best_row = -1;

  __device__ __forceinline__ GemvOp(Block<Config>& block, const GemvTask& task)
      : block(block),
        task(task),
        rows(kRows == 1 ? 1 : block.tokens),
        cut(task.row_end - task.row_begin, Shape::kColumns, kRows, Input::kBlockColumns),
        input(block, task, rows, cut) {}

  // False when the launch is over.
  __device__ __forceinline__ bool run() {
    if (!block.template open<Shape::kTaggedX>(head())) return false;
    if (Shape::kEpilogue == kEpilogueArgmax && prompt_goes_on()) return neutral();
    if (Shape::kPrologue == kPrologueLayerNorm && !input.layer_norm()) return false;
    Beside beside = read_beside(0, block.thread);
    if (cut.whole()) input.stage(0, true);
    settle(beside, 0, block.thread);
    if (Shape::kTaggedX) block.begun(head());
    if (kHeld) hold();
#pragma unroll 1
    for (u32 group = 0; group < cut.tiles; group += cut.group_tiles) {
      const u32 tiles = cut.in_group(group);
#pragma unroll 1
      for (u32 chunk = 0; chunk < cut.blocks; chunk += cut.chunk_blocks) {
        if (!cut.whole()) input.stage(chunk, group == 0);
        multiply(group, tiles, chunk);
      }
      if (!block.meet()) return false;
      finish(group, tiles * kOutputs, beside);
      if (group + tiles >= cut.tiles) break;
      if (!block.meet()) return false;  // before the next group's sums
      beside = read_beside(group + tiles, block.thread);
      settle(beside, group + tiles, block.thread);
    }
    if (Shape::kEpilogue == kEpilogueArgmax) return argmax();
    // What warp 0 alone has stored, thread 0 publishes without a meeting; and tagged words need nobody to.
    const bool published = cut.tiles * kOutputs <= kWarp || task.signal_count == 0;
    return (kRows == 1 && published) || block.meet();
  }

 private:
  // What is added to an output.
  struct Beside {
    float residual = 0.0f;
    float bias = 0.0f;
    float scale = 1.0f;  // of a row of integers
    u32 missing = 0;     // of the residual
  };

  __device__ __forceinline__ const TaskHead& head() const { return reinterpret_cast<const TaskHead&>(task); }

  __device__ __forceinline__ Values<Shape::kTaggedOut> out() const {
    return {task.out, block.epoch(task.out_epoch, task.out_epochs)};
  }

  __device__ __forceinline__ bool prompt_goes_on() const {
    return block.pos + block.tokens < *reinterpret_cast<const u32*>(task.prompt_length);
  }

  // The head has no work while the prompt gives the next token; what it declares to write it writes all the same.
  __device__ __forceinline__ bool neutral() {
    float* logits = reinterpret_cast<float*>(task.out);
    for (u32 row = task.row_begin + block.thread; row < task.row_end; row += kThreads) logits[row] = 0.0f;
    if (block.thread == 0) {
      *reinterpret_cast<float*>(task.best_value) = minus_infinity();
      *reinterpret_cast<int*>(task.best_index) = 0;
    }
    return block.meet();
  }

  // Outputs of a group are numbered by tile, row of x, row of the tile.
  __device__ __forceinline__ u32 row_of(u32 output) const { return output % kOutputs / kTileRows; }
  __device__ __forceinline__ u32 weight_row_of(u32 first_tile, u32 output) const {
    const u32 tile = first_tile + output / kOutputs;
    return task.row_begin + tile * kTileRows + output % kTileRows;
  }

  __device__ __forceinline__ Beside read_beside(u32 first_tile, u32 output) const {
    Beside found;
    const u32 weight_row = weight_row_of(first_tile, output);
    const bool there = output < cut.in_group(first_tile) * kOutputs && row_of(output) < rows;
    if (!there || weight_row >= task.row_end) return found;
    if (Shape::kEpilogue == kEpilogueAddResidual) {
      const Values<Shape::kTaggedOut> residual(task.residual, block.epoch(task.residual_epoch, task.residual_epochs));
      found.residual = residual.get(row_of(output) * task.out_stride + weight_row, found.missing);
    }
    if (Shape::kBias) found.bias = reinterpret_cast<const float*>(task.bias)[weight_row];
    if (Shape::kQuantized && !kGrouped) found.scale = reinterpret_cast<const float*>(task.scales)[weight_row];
    return found;
  }

  // Of the group: tile, output, warp. Tasks of one row take the halves in turn.
  __device__ __forceinline__ float* sums() const {
    return block.shared.sums + (kRows == 1 ? block.half(head()) * (Shared<Config>::kSums / 2) : 0);
  }

  // What was asked for has come.
  __device__ __forceinline__ void settle(Beside& asked, u32 first_tile, u32 output) {
    if (!Shape::kTaggedOut || Shape::kEpilogue != kEpilogueAddResidual || asked.missing == 0) return;
    const u32 epoch = block.epoch(task.residual_epoch, task.residual_epochs);
    block.template await<Shape::kTaggedOut>(head(), epoch, [&](u32& missing) {
      asked = read_beside(first_tile, output);
      missing = asked.missing;
    });
  }

  // This warp's blocks of a row of tiles: kShare of each piece, not all of which are there.
  __device__ __forceinline__ void hold() {
#pragma unroll
    for (u32 i = 0; i < Input::kMine; ++i) {
      const u32 within = block.warp + i % kShare * kWarps, at = i / kShare * cut.piece_blocks + within;
      held[i] = {};
      if (within < cut.piece_blocks && at < cut.blocks) held[i] = input.held(at);
    }
  }

  // This warp's share of the products of a group of tiles with the staged chunk: every kWarps-th block of each piece.
  __device__ __forceinline__ void multiply(u32 first_tile, u32 tiles, u32 chunk) {
    const u32 width = cut.in_chunk(chunk);
#pragma unroll 1
    for (u32 tile = 0; tile < tiles; tile += cut.piece_tiles) {
      Sum sum[kTerms][4] = {};
      const u32 more = least(cut.piece_tiles, tiles - tile) - 1;
      if constexpr (kHeld) {
#pragma unroll
        for (u32 i = 0; i < kPieces; ++i) {
          piece_of(first_tile, tile, chunk, more, i * cut.piece_blocks,
                   least(cut.piece_blocks, cut.blocks - i * cut.piece_blocks), held + i * kShare, sum);
        }
      } else {
        for (u32 begin = 0; begin < width; begin += cut.piece_blocks) {
          piece_of(first_tile, tile, chunk, more, begin, least(cut.piece_blocks, width - begin), held, sum);
        }
      }
      put_down(tile + more, chunk, sum);
    }
  }

  // A piece: `count` blocks, `begin` blocks into the chunk, of one tile and of `more` that follow it. The sums of the
  // last are not put down: other pieces may add to them.
  __device__ __forceinline__ void piece_of(u32 first_tile, u32 tile, u32 chunk, u32 more, u32 begin, u32 count,
                                           const typename Input::Held* x, Sums sum) {
    const char* piece = block.take() + block.lane * 16;
    share(piece, first_tile + tile, chunk, begin, count, x, sum);
    for (u32 other = 1; other <= more; ++other) {
      put_down(tile + other - 1, chunk, sum);
#pragma unroll
      for (u32 term = 0; term < kTerms; ++term) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[term][i] = 0;
      }
      share(piece + other * count * kBlockBytes, first_tile + tile + other, chunk, begin, count, x, sum);
    }
    block.give_back();
  }

  __device__ __forceinline__ void share(const char* piece, u32 tile, u32 chunk, u32 begin, u32 count,
                                        const typename Input::Held* held, Sums sum) const {
#pragma unroll kGrouped ? 1 : kShare
    for (u32 i = 0; i < kShare; ++i) {
      const u32 at = block.warp + i * kWarps;
      if ((i + 1) * kWarps > count && at >= count) continue;
      const uint4 w = *reinterpret_cast<const uint4*>(piece + at * kBlockBytes);
      const auto x = kHeld ? held[i] : input.held(begin + at);
      if constexpr (!Shape::kQuantized) {
        mma_bf16(sum[0], x.first, w.x, w.y);
        mma_bf16(sum[1], x.second, w.z, w.w);
      } else if constexpr (!kGrouped) {
        multiply_digits(x, w, sum);
      } else {
        int some[kTerms][4] = {};
        multiply_digits(x, w, some);
        add_scaled(some, tile, (chunk + begin + at) * kIntegerColumns / Shape::kGroupColumns, sum);
      }
    }
  }

  __device__ __forceinline__ static void multiply_digits(const typename Input::Digits& x, const uint4& w,
                                                         int (&sum)[kTerms][4]) {
    if constexpr (kRows == 1) {
      mma_s8(sum[0], {x.of[0].x, 0, x.of[0].y, 0}, w.x, w.y);
      mma_s8(sum[1], {x.of[0].z, 0, x.of[0].w, 0}, w.z, w.w);
    } else {
#pragma unroll
      for (u32 i = 0; i < Input::kProducts; ++i) {
        const uint4 &upper = x.of[2 * i], &lower = x.of[2 * i + 1];
        mma_s8(sum[i], {upper.x, lower.x, upper.y, lower.y}, w.x, w.y);
        mma_s8(sum[i], {upper.z, lower.z, upper.w, lower.w}, w.z, w.w);
      }
    }
  }

  // Sums of a group of columns, under its scales in this lane's two rows of the tile.
  __device__ __forceinline__ void add_scaled(const int (&some)[kTerms][4], u32 tile, u32 group, Sums sum) const {
    constexpr u32 kGroups = kGrouped ? divide_up(Shape::kColumns, kGrouped ? Shape::kGroupColumns : 1) : 1;
    const float* scales = reinterpret_cast<const float*>(task.scales) + group;
    const u32 row = task.row_begin + tile * kTileRows + block.lane % 4 * 2;
#pragma unroll
    for (u32 odd = 0; odd < 2; ++odd) {
      const float scale = scales[static_cast<u64>(least(row + odd, task.row_end - 1)) * kGroups];
#pragma unroll
      for (u32 term = 0; term < kTerms; ++term) {
        sum[term][odd] += scale * static_cast<float>(some[term][odd]);
        sum[term][odd + 2] += scale * static_cast<float>(some[term][odd + 2]);
      }
    }
  }

  // A tile's sums, of this lane's two weight rows. Behind the first chunk they are added to.
  __device__ __forceinline__ void put_down(u32 tile, u32 chunk, const Sum (&sum)[kTerms][4]) const {
    if constexpr (Shape::kQuantized) {
      put_digits_down(tile, chunk, sum);
    } else {  // those of hi and lo are one
      if (block.lane / 4 >= rows) return;
      put_two(tile, block.lane / 4, chunk, (sum[0][0] + sum[0][2]) + (sum[1][0] + sum[1][2]),
              (sum[0][1] + sum[0][3]) + (sum[1][1] + sum[1][3]));
    }
  }

  // Each digit at its worth; those of a row of the step are four lanes', which add them up. As floats the sums of 2,048
  // columns are exact.
  __device__ __forceinline__ void put_digits_down(u32 tile, u32 chunk, const Sum (&sum)[kTerms][4]) const {
    block.identify();  // again: what follows from it would hold registers that the sums need
    const u32 product_row = block.lane / 4;
    const float by = worth(product_row % kDigits);
#pragma unroll
    for (u32 half = 0; half < (kRows == 1 ? 1 : 2 * Input::kProducts); ++half) {
      const u32 term = half / 2, first = half % 2 * 2;
      const u32 row = kRows == 1 ? product_row / kDigits : product_row / kDigits + half * Input::kDigitRows / 2;
      float even = static_cast<float>(kRows == 1 ? sum[0][0] + sum[1][0] : sum[term][first]) * by;
      float odd = static_cast<float>(kRows == 1 ? sum[0][1] + sum[1][1] : sum[term][first + 1]) * by;
#pragma unroll
      for (int mask = 4; mask < 4 * static_cast<int>(kDigits); mask *= 2) {
        even += shuffle_xor(even, mask);
        odd += shuffle_xor(odd, mask);
      }
      if (product_row % kDigits != 0 || row >= rows) continue;
      const float unit = input.unit(row);
      put_two(tile, row, chunk, even * unit, odd * unit);
    }
  }

  __device__ __forceinline__ void put_two(u32 tile, u32 row, u32 chunk, float even, float odd) const {
    float* to = sums() + (tile * kOutputs + row * kTileRows + block.lane % 4 * 2) * kPitch + block.warp;
    if (!cut.whole() && chunk != 0) {
      even += to[0];
      odd += to[kPitch];
    }
    to[0] = even;
    to[kPitch] = odd;
  }

  // Add the warps' shares of a group in one fixed order, and what stands behind them.
  __device__ __forceinline__ void finish(u32 first_tile, u32 total, const Beside& asked) {
#pragma unroll 1
    for (u32 output = block.thread; output - block.lane < total; output += kThreads) {
      float value = 0.0f;
      Beside beside;
      if (output < total) {
        value = sum_of<kWarps>(sums() + output * kPitch);
        if (Shape::kPrologue == kPrologueNorm) value *= input.norm_scale(row_of(output));
        beside = asked;
        if (!kOneEach && output != block.thread) {
          beside = read_beside(first_tile, output);
          settle(beside, first_tile, output);
        }
        if (Shape::kQuantized) value *= beside.scale;
        if (Shape::kBias) value += beside.bias;
      }
      const float next = Shape::kEpilogue == kEpilogueGatedMul ? shuffle_xor(value, 1) : 0.0f;
      const u32 row = row_of(output), weight_row = weight_row_of(first_tile, output), begin = row * task.out_stride;
      if (output >= total || weight_row >= task.row_end || row >= rows || !block.good) {
        if (kOneEach) break;
        continue;
      }
      switch (Shape::kEpilogue) {
        case kEpilogueStore:
          out().put(begin + weight_row, value);
          break;
        case kEpilogueAddResidual:
          out().put(begin + weight_row, beside.residual + value * task.scale);
          break;
        case kEpilogueGatedMul:
          if (weight_row % 2 == 0) out().put(begin + weight_row / 2, activated(value) * next);
          break;
        default:
          value *= task.scale;
          if (task.softcap != 0.0f) value = task.softcap * tanhf(value / task.softcap);
          out().put(weight_row, value);
          keep_best(best, best_row, value, static_cast<int>(weight_row));
      }
      if (kOneEach) break;
    }
  }

  __device__ __forceinline__ static float activated(float x) {
    switch (Shape::kActivation) {
      case kActivationGelu:
        return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
      case kActivationGeluTanh:
        return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
      default:
        return quotient(x, 1.0f + expf(-x));
    }
  }

  // The best of this task's rows.
  __device__ __forceinline__ bool argmax() {
    best_of_warp(best, best_row);
    if (block.lane == 0) {
      block.shared.warp_value[block.warp] = best;
      block.shared.warp_index[block.warp] = best_row;
    }
    if (!block.meet()) return false;
    if (block.thread != 0) return true;
    for (u32 warp = 1; warp < kWarps; ++warp) {
      keep_best(best, best_row, block.shared.warp_value[warp], block.shared.warp_index[warp]);
    }
    *reinterpret_cast<float*>(task.best_value) = best;
    *reinterpret_cast<int*>(task.best_index) = best_row;
    return true;
  }
};

// In steps of one row, or of several.
template <class Config, bool kOneRow>
struct RunGemv {
  Block<Config>& block;
  const GemvTask& task;

  template <class Shape>
  __device__ __forceinline__ bool operator()(Shape) const {
    constexpr u32 kRows = kOneRow || Shape::kLastRowOnly ? 1 : Config::kTokensMax;
    return GemvOp<Config, Shape, kRows>(block, task).run();
  }
};

template <bool kOneRow, class Config>
__device__ __forceinline__ bool run_gemv(Block<Config>& block, const GemvTask& task) {
  return Config::with_shape(task.shape, RunGemv<Config, kOneRow>{block, task});
}

}  // namespace amk
