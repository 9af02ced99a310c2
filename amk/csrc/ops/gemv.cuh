// gemv: rows of a weight matrix times the step's rows, by tensor core, with what stands before and behind it fused in.
//
// Each consumer warp multiplies the column blocks that are its own (every kWarps-th), stages the columns of x that
// these need, and shares nothing with other warps until their sums are added. So a task has a meeting before the sums,
// and one behind its waits, if it has any: tagged words are waited for by those who multiply them.
#pragma once

#include "ops/best.cuh"
#include "ops/gemv_input.cuh"
#include "ops/product.cuh"

namespace amk {

// `kRows` rows of x at most: one, or as many as a step may have. The task is cut for so many. `kOneRow`: the step has
// one. In others the head alone multiplies a single row, and holds none of it: registers are short there.
template <class Config, class Shape, u32 kRows, bool kOneRow>
struct GemvOp {
  static constexpr u32 kWarps = Config::kConsumerWarps;
  static constexpr u32 kThreads = kWarps * kWarp;
  static constexpr u32 kSumsEach = Shared<Config>::kWarpsUp;  // of an output
  static constexpr u32 kOutputs = kRows * kTileRows;          // of a tile, those of rows that are not there among them
  // Of the outputs of a group no thread has two.
  static constexpr bool kOneEach = Shared<Config>::kSums / kSumsEach <= kThreads;
  using Input = GemvInput<Config, Shape, kRows>;
  using Product = amk::Product<Shape, kRows>;
  using Held = typename Product::Held;
  using Sums = typename Product::Sums;
  using Out = Values<Shape::kTaggedOut>;
  static constexpr u32 kShare = Input::kShare;

  // Tiles of a piece, where it holds whole ones; and those of them that are multiplied together, in a step of one row:
  // so that one need not wait for what the other does.
  static constexpr u32 kPieceTiles =
      GemvPieces<Config>(kTileRows, Shape::kColumns, kRows, Input::kBlockColumns).piece_tiles;
  static constexpr u32 kTogether = kRows == 1 ? least(kPieceTiles, 4) : 1;

  // Of a row that is staged whole and cut into few blocks, a warp holds its own in registers.
  static constexpr u32 kPieces = Input::kMine / kShare;
  static constexpr bool kHeld = kOneRow && Input::kMine <= 8 && Input::kChunkBlocks == Input::kBlocks;

  Block<Config>& block;
  const GemvTask& task;
  const u32 rows;  // of x in this step
  const GemvPieces<Config> cut;
  Input input;
  Held held[kHeld ? Input::kMine : 1];
  // Of this lane's sum of a tile, in a step of one row: the turn of an output's quads does not depend on its tile. Made
  // once, and kept.
  const u32 place;
  float best = minus_infinity();
  int best_row = -1;

  __device__ __forceinline__ GemvOp(Block<Config>& block, const GemvTask& task)
      : block(block),
        task(task),
        rows(kRows == 1 ? 1 : block.tokens),
        cut(task.row_end - task.row_begin, Shape::kColumns, kRows, Input::kBlockColumns),
        input(block, task, rows, cut),
        place(kRows == 1 ? anew(place_of(block.lane / 4, block.warp)) : 0) {}

  // False when the launch is over.
  __device__ __forceinline__ bool run() {
    if (!block.template open<Shape::kTaggedX>(head())) return false;
    if (Shape::kEpilogue == kEpilogueArgmax && prompt_goes_on()) return neutral();
    if (Shape::kPrologue == kPrologueLayerNorm && !input.layer_norm()) return false;
    Beside beside = read_beside(0, block.thread);
    if (cut.whole()) input.stage(0, true);
    settle(beside);
    if (Shape::kTaggedX) block.begun(head());
    const Out out = this->out();  // before the meetings: nothing that is left behind them waits for it
    if (kHeld) hold();
#pragma unroll 1
    for (u32 group = 0; group < cut.tiles; group += cut.group_tiles) {
      const u32 tiles = cut.in_group(group);
#pragma unroll 1
      for (u32 chunk = 0; chunk < cut.blocks; chunk += cut.chunk_blocks) {
        if (!cut.whole()) input.stage(chunk, group == 0);
        multiply(group, tiles, chunk);
      }
      if (kRows == 1 && kPieceTiles == 1) input.add_squares();
      if (!block.meet()) return false;
      finish(group, tiles * kOutputs, beside, out);
      if (group + tiles >= cut.tiles) break;
      if (!block.meet()) return false;  // before the next group's sums
      beside = read_beside(group + tiles, block.thread);
      settle(beside);
    }
    if (Shape::kEpilogue == kEpilogueArgmax) return argmax();
    // What warp 0 alone has stored, thread 0 publishes without a meeting; and tagged words need nobody to.
    const bool published = cut.tiles * kOutputs <= kWarp || task.signal_count == 0;
    return (kRows == 1 && published) || block.meet();
  }

 private:
  static constexpr u32 kNowhere = 0xffffffff;

  // What is added to an output, and where it goes.
  struct Beside {
    u32 place = kNowhere;  // in a row of outputs, counted from the step's first
    Word residual = {0.0f, 0};
    float bias = 0.0f;
    float scale = 1.0f;  // of a row of integers
  };

  __device__ __forceinline__ const TaskHead& head() const { return reinterpret_cast<const TaskHead&>(task); }

  __device__ __forceinline__ Out residual() const {
    return {task.residual, block.epoch(task.residual_epoch, task.residual_epochs)};
  }

  __device__ __forceinline__ Out out() const { return {task.out, block.epoch(task.out_epoch, task.out_epochs)}; }

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
    const u32 begin = row_of(output) * task.out_stride;
    if (Shape::kEpilogue != kEpilogueGatedMul) {
      found.place = begin + weight_row;
    } else if (weight_row % 2 == 0) {
      found.place = begin + weight_row / 2;
    }
    if (Shape::kEpilogue == kEpilogueAddResidual) {
      found.residual = residual().look(found.place);
    }
    if (Shape::kBias) found.bias = reinterpret_cast<const float*>(task.bias)[weight_row];
    if (Shape::kQuantized && !Product::kGrouped) found.scale = reinterpret_cast<const float*>(task.scales)[weight_row];
    return found;
  }

  // Of the group: tile, output, warp. Tasks of one row take the halves in turn.
  __device__ __forceinline__ float* sums() const {
    return block.shared.sums + (kRows == 1 ? block.half(head()) * (Shared<Config>::kSums / 2) : 0);
  }

  // Where a warp's sum of an output lies. Each output's quads are turned about, so that eight lanes that read a quad of
  // eight outputs find them on different banks.
  __device__ __forceinline__ static u32 place_of(u32 output, u32 warp) {
    constexpr u32 kQuads = kSumsEach / 4;
    return output * kSumsEach + (warp / 4 + output * kQuads / 8) % kQuads * 4 + warp % 4;
  }

  // Of all warps, in one fixed order.
  __device__ __forceinline__ float summed(u32 output) const {
    float sum = 0.0f;
#pragma unroll
    for (u32 warp = 0; warp + 4 <= kWarps; warp += 4) {
      const float4 some = load_four(sums() + place_of(output, warp));
      sum += some.x + some.y + (some.z + some.w);
    }
#pragma unroll
    for (u32 warp = kWarps / 4 * 4; warp < kWarps; ++warp) sum += sums()[place_of(output, warp)];
    return sum;
  }

  // What was asked for has come.
  __device__ __forceinline__ void settle(Beside& asked) const {
    if constexpr (Shape::kTaggedOut && Shape::kEpilogue == kEpilogueAddResidual) {
      const Out from = residual();
      if (asked.place == kNowhere || from.came(asked.residual)) return;
      block.template await<true>(head(), from.epoch, [&](u32& missing) {
        asked.residual = from.look(asked.place);
        missing = !from.came(asked.residual);
      });
    }
  }

  // This warp's blocks of a row of tiles: kShare of each piece, not all of which are there.
  __device__ __forceinline__ void hold() {
#pragma unroll
    for (u32 i = 0; i < Input::kMine; ++i) {
      const u32 within = block.warp + i % kShare * kWarps, at = i / kShare * cut.piece_blocks + within;
      const bool there = within < cut.piece_blocks && at < cut.blocks;
      held[i] = input.held(there ? at : block.warp, there);  // else its first again, or what no warp stages
    }
  }

  // This warp's share of the products of a group of tiles with the staged chunk: every kWarps-th block of each piece.
  __device__ __forceinline__ void multiply(u32 first_tile, u32 tiles, u32 chunk) {
    if constexpr (kPieceTiles > 1) {
      for (u32 tile = 0; tile < tiles; tile += kPieceTiles) {
        whole_tiles(first_tile, tile, least(kPieceTiles, tiles - tile));
      }
    } else {
#pragma unroll 1
      for (u32 tile = 0; tile < tiles; ++tile) part_by_part(first_tile, tile, chunk);
    }
  }

  // A piece of `count` tiles. What lies behind the last of them is multiplied like them, and left.
  __device__ __forceinline__ void whole_tiles(u32 first_tile, u32 tile, u32 count) {
    const char* piece = block.take();
#pragma unroll 1
    for (u32 first = 0; kTogether == kPieceTiles ? first == 0 : first < count; first += kTogether) {
      Sums sums[kTogether] = {};
#pragma unroll
      for (u32 i = 0; i < kTogether; ++i) {
        share(piece + (first + i) * Input::kBlocks * kBlockBytes, first_tile + tile + first + i, 0, 0, Input::kBlocks,
              held, sums[i]);
      }
      if (kRows == 1) input.add_squares();  // meanwhile
      put_down(tile + first, count - first, 0, sums);
    }
    block.give_back();
  }

  // A tile in pieces; of a chunk of its columns.
  __device__ __forceinline__ void part_by_part(u32 first_tile, u32 tile, u32 chunk) {
    const u32 width = cut.in_chunk(chunk);
    Sums sums[1] = {};
    if constexpr (kHeld) {
#pragma unroll
      for (u32 i = 0; i < kPieces; ++i) {
        const u32 begin = i * cut.piece_blocks;
        part(first_tile + tile, chunk, begin, least(cut.piece_blocks, cut.blocks - begin), held + i * kShare, sums[0]);
      }
    } else {
      for (u32 begin = 0; begin < width; begin += cut.piece_blocks) {
        part(first_tile + tile, chunk, begin, least(cut.piece_blocks, width - begin), held, sums[0]);
      }
    }
    put_down(tile, 1, chunk, sums);
  }

  // A piece: `count` blocks of a tile, `begin` blocks into the chunk.
  __device__ __forceinline__ void part(u32 tile, u32 chunk, u32 begin, u32 count, const Held* x, Sums& sums) {
    share(block.take(), tile, chunk, begin, count, x, sums);
    block.give_back();
  }

  __device__ __forceinline__ void share(const char* blocks, u32 tile, u32 chunk, u32 begin, u32 count, const Held* x,
                                        Sums& sums) const {
#pragma unroll Product::kGrouped ? 1 : kShare
    for (u32 i = 0; i < kShare; ++i) {
      const u32 at = block.warp + i * kWarps;
      if ((i + 1) * kWarps > count && at >= count) continue;
      const uint4 w = *reinterpret_cast<const uint4*>(blocks + at * kBlockBytes + block.lane * 16);
      Product::add(sums, block.lane, w, kHeld ? x[i] : input.held(begin + at, true),
                   [&](u32 row) { return scale_of(tile, row, (chunk + begin + at) * Input::kBlockColumns); });
    }
  }

  // Of a group of columns, in a row of a tile.
  __device__ __forceinline__ float scale_of(u32 tile, u32 row, u32 column) const {
    constexpr u32 kColumns = Product::kGrouped ? Shape::kGroupColumns : Shape::kColumns;
    const u32 weight_row = least(task.row_begin + tile * kTileRows + row, task.row_end - 1);
    const u64 place = static_cast<u64>(weight_row) * divide_up(Shape::kColumns, kColumns) + column / kColumns;
    return reinterpret_cast<const float*>(task.scales)[place];
  }

  // This warp's sums of some tiles, of which `count` are there. Behind the first chunk they are added to.
  template <u32 kTiles>
  __device__ __forceinline__ void put_down(u32 tile, u32 count, u32 chunk, const Sums (&sums)[kTiles]) const {
    if constexpr (kRows == 1) {
      float total[kTiles];
#pragma unroll
      for (u32 i = 0; i < kTiles; ++i) total[i] = Product::total(sums[i], block.lane);
      const float unit = Shape::kQuantized ? input.unit(0) : 1.0f;
#pragma unroll
      for (u32 i = 0; i < kTiles; ++i) {
        float& to = this->sums()[place + (tile + i) * kOutputs * kSumsEach];
        if (i < count && block.lane % 4 == 0) put(to, chunk, total[i] * unit);
      }
    } else {
      if (Shape::kQuantized) block.identify();  // again: what follows from it would hold registers that the sums need
      Product::each(
          sums[0], block.lane, rows, [&](u32 row) { return input.unit(row); },
          [&](u32 row, u32 weight_row, float sum) {
            put(this->sums()[place_of(tile * kOutputs + row * kTileRows + weight_row, block.warp)], chunk, sum);
          });
    }
  }

  __device__ __forceinline__ void put(float& to, u32 chunk, float sum) const {
    to = !cut.whole() && chunk != 0 ? to + sum : sum;
  }

  // Add the warps' shares of a group in one fixed order, and what stands behind them.
  __device__ __forceinline__ void finish(u32 first_tile, u32 total, const Beside& asked, const Out& out) {
#pragma unroll 1
    for (u32 output = block.thread; output - block.lane < total; output += kThreads) {
      // A lane that is behind the last output adds that up again: to branch takes longer.
      float value = summed(least(output, total - 1));
      if (Shape::kPrologue == kPrologueNorm) value *= input.norm_scale(row_of(least(output, total - 1)));
      Beside beside = asked;
      if (!kOneEach && output != block.thread) {
        beside = read_beside(first_tile, output);
        settle(beside);
      }
      if (Shape::kQuantized) value *= beside.scale;
      if (Shape::kBias) value += beside.bias;
      const float next = Shape::kEpilogue == kEpilogueGatedMul ? shuffle_xor(value, 1) : 0.0f;
      if (beside.place != kNowhere && block.good) put_out(out, beside, value, next);
      if (kOneEach) break;
    }
  }

  // `next` is the value of the next weight row.
  __device__ __forceinline__ void put_out(const Out& out, const Beside& beside, float value, float next) {
    switch (Shape::kEpilogue) {
      case kEpilogueStore:
        out.put(beside.place, value);
        break;
      case kEpilogueAddResidual:
        out.put(beside.place, beside.residual.value + value * task.scale);
        break;
      case kEpilogueGatedMul:
        out.put(beside.place, activated(value) * next);
        break;
      default:
        value *= task.scale;
        if (task.softcap != 0.0f) value = task.softcap * tanhf(value / task.softcap);
        out.put(beside.place, value);
        keep_best(best, best_row, value, static_cast<int>(beside.place));
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
    if (!best_of_block(block, best, best_row)) return false;
    if (block.thread != 0) return true;
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
    return GemvOp<Config, Shape, kRows, kOneRow>(block, task).run();
  }
};

template <bool kOneRow, class Config>
__device__ __forceinline__ bool run_gemv(Block<Config>& block, const GemvTask& task) {
  return Config::with_shape(task.shape, RunGemv<Config, kOneRow>{block, task});
}

}  // namespace amk
