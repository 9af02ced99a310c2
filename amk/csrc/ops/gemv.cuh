// gemv: rows of a weight matrix times the step's rows, by tensor core, with what stands before and behind it fused in.
#pragma once

#include "prim/mma.cuh"
#include "prim/number.cuh"
#include "vm/block.cuh"
#include "vm/stream.cuh"

namespace amk {

template <class Config>
struct GemvOp {
  static constexpr int kWarps = Config::kConsumerWarps;
  static constexpr int kThreads = kWarps * kWarp;

  Block<Config>& block;
  const GemvTask& task;
  GemvPieces<Config> cut;
  u32 rows;    // of x in this step
  u32 first;   // row of the step that is x's first
  u32 stride;  // elements from one staged row to the next
  u16* hi;     // [rows, stride] bf16
  u16* lo;

  __device__ GemvOp(Block<Config>& block, const GemvTask& task)
      : block(block),
        task(task),
        cut(task, task.last_row_only ? 1 : block.tokens),
        rows(task.last_row_only ? 1 : block.tokens),
        first(task.last_row_only ? block.tokens - 1 : 0),
        stride(cut.chunk_blocks * kTileColumns + kRowPad),
        hi(reinterpret_cast<u16*>(block.shared.work)),
        lo(hi + rows * stride) {}

  // False when the launch is over.
  __device__ bool run() {
    if (task.epilogue == kEpilogueArgmax && prompt_goes_on()) return neutral();
    if (task.prologue == kPrologueLayerNorm && !layer_norm()) return false;
    const bool whole = cut.chunk_blocks == cut.blocks;
    if (whole) {
      stage(0, true);
      if (!block.meet()) return false;
    }
    float best = minus_infinity();
    int best_row = -1;
    for (u32 tile = 0; tile < cut.tiles; tile += kTileGroup) {
      float sum[kTileGroup][4] = {};
      for (u32 chunk = 0; chunk < cut.blocks; chunk += cut.chunk_blocks) {
        if (!whole) {
          if (!block.meet()) return false;  // before other warps' last chunk is overwritten
          stage(chunk, tile == 0);
          if (!block.meet()) return false;
        }
        if (!multiply(tile, chunk, sum)) return false;
      }
      if (!reduce(tile, sum, best, best_row)) return false;
    }
    return task.epilogue != kEpilogueArgmax || argmax(best, best_row);
  }

 private:
  __device__ bool prompt_goes_on() const {
    return block.pos + block.tokens < *reinterpret_cast<const u32*>(task.prompt_length);
  }

  // The head has no work while the prompt gives the next token; what it declares to write it writes all the same.
  __device__ bool neutral() {
    float* logits = reinterpret_cast<float*>(task.out);
    for (u32 row = task.row_begin + block.thread; row < task.row_end; row += kThreads) logits[row] = 0.0f;
    if (block.thread == 0) {
      *reinterpret_cast<float*>(task.best_value) = minus_infinity();
      *reinterpret_cast<int*>(task.best_index) = 0;
    }
    return true;
  }

  __device__ float x(u32 row, u32 column) const {
    const float* base = reinterpret_cast<const float*>(task.x);
    return base[(first + row) * task.x_stride + column];
  }

  // 1 / sqrt(mean(x^2) + eps) of a row, of what the warps added up while they staged it. It multiplies behind the dot
  // product, which is linear, so nothing waits for it.
  __device__ float norm_scale(u32 row) const {
    float squares = 0.0f;
    for (int warp = 0; warp < kWarps; ++warp) squares += block.shared.squares[row][warp];
    return 1.0f / sqrtf(squares / task.k + task.eps);
  }

  // Mean and 1 / sqrt(variance + eps) of each row, in two passes; they are needed before the dot product.
  __device__ bool layer_norm() {
#pragma unroll 1
    for (u32 row = 0; row < rows; ++row) {
      float mean = 0.0f;
#pragma unroll 1
      for (int pass = 0; pass < 2; ++pass) {
        float sum = 0.0f;
        for (u32 column = block.thread; column < task.k; column += kThreads) {
          const float value = x(row, column) - mean;
          sum += pass == 0 ? value : value * value;
        }
        bool good;
        const float total = block.sum(sum, good) / task.k;
        if (!good) return false;
        if (pass == 0) {
          mean = total;
        } else if (block.thread == 0) {
          block.shared.shift[row] = mean;
          block.shared.scale[row] = 1.0f / sqrtf(total + task.eps);
        }
      }
    }
    return block.meet();
  }

  // Partial attention results, merged in split order.
  __device__ float merged(u32 row, u32 column) const {
    const u32 head = column / Config::kHeadDim;
    const float* base = reinterpret_cast<const float*>(task.x);
    const float* stats = reinterpret_cast<const float*>(task.stats);
    float top = minus_infinity();
#pragma unroll 1
    for (u32 split = 0; split < task.splits; ++split) {
      top = fmaxf(top, stats[((split * Config::kTokensMax + row) * task.heads + head) * 2]);
    }
    float value = 0.0f, total = 0.0f;
#pragma unroll 1
    for (u32 split = 0; split < task.splits; ++split) {
      const float* stat = stats + ((split * Config::kTokensMax + row) * task.heads + head) * 2;
      const float weight = expf(stat[0] - top);
      value += base[split * task.split_stride + row * task.x_stride + column] * weight;
      total += stat[1] * weight;
    }
    return value / total;
  }

  // Columns of a chunk as hi and lo; zeros behind the last one. Sums of squares for the norm are
  // taken the first time.
  __device__ void stage(u32 chunk, bool first_time) {
    const u32 begin = chunk * kTileColumns;
    const u32 count = least(cut.chunk_blocks, cut.blocks - chunk) * kTileColumns;
    const float* gain = reinterpret_cast<const float*>(task.gain);
    for (u32 row = 0; row < rows; ++row) {
      float squares = 0.0f;
      for (u32 at = block.thread; at < count; at += kThreads) {
        const u32 column = begin + at;
        float value = 0.0f;
        if (column < task.k) {
          value = task.prologue == kPrologueMergeSplits ? merged(row, column) : x(row, column);
          if (task.prologue == kPrologueNorm) {
            squares += value * value;
            value *= gain[column];
          }
          if (task.prologue == kPrologueLayerNorm) {
            value = (value - block.shared.shift[row]) * block.shared.scale[row] * gain[column];
            if (task.shift != 0) value += reinterpret_cast<const float*>(task.shift)[column];
          }
        }
        const u16 high = to_bf16(value);
        hi[row * stride + at] = high;
        lo[row * stride + at] = to_bf16(value - from_bf16(high));
      }
      if (task.prologue == kPrologueNorm && first_time) {
        squares = warp_sum(squares);
        float& sum = block.shared.squares[row][block.warp];
        if (block.lane == 0) sum = chunk == 0 ? squares : sum + squares;
      }
    }
  }

  // This warp's share of the products of a group of tiles with the staged chunk.
  __device__ bool multiply(u32 first_tile, u32 chunk, float (&sum)[kTileGroup][4]) {
    const u32 group = block.lane / 4, quad = block.lane % 4;
    const bool has_row = group < rows;
    const u16* high_row = hi + group * stride + quad * 8;
    const u16* low_row = lo + group * stride + quad * 8;
    return cut.each_in_chunk(first_tile, chunk, [&](u32 tile, u32 piece, u32 count) {
      const char* weights = block.take();
      if (weights == nullptr) return false;
      float part[4] = {};
#pragma unroll 2
      for (u32 at = block.warp; at < count; at += kWarps) {
        const uint4 w = *reinterpret_cast<const uint4*>(weights + at * kBlockBytes + block.lane * 16);
        uint4 h = {0, 0, 0, 0}, l = {0, 0, 0, 0};
        if (has_row) {
          const u32 column = (piece - chunk + at) * kTileColumns;
          h = *reinterpret_cast<const uint4*>(high_row + column);
          l = *reinterpret_cast<const uint4*>(low_row + column);
        }
        mma_bf16(part, h.x, l.x, h.y, l.y, w.x, w.y);
        mma_bf16(part, h.z, l.z, h.w, l.w, w.z, w.w);
      }
#pragma unroll
      for (int slot = 0; slot < kTileGroup; ++slot) {
        if (first_tile + slot != tile) continue;
        for (int i = 0; i < 4; ++i) sum[slot][i] += part[i];
      }
      block.give_back();
      return true;
    });
  }

  // Add the warps' shares of a group in warp order, and finish its rows.
  __device__ bool reduce(u32 first_tile, float (&sum)[kTileGroup][4], float& best, int& best_row) {
    const u32 group = block.lane / 4, quad = block.lane % 4;
    const u32 outputs = rows * kTileRows;
    if (group < rows) {
#pragma unroll
      for (int slot = 0; slot < kTileGroup; ++slot) {
        float* to = block.shared.sums + (slot * kWarps + block.warp) * outputs + group * kTileRows + quad * 2;
        to[0] = sum[slot][0] + sum[slot][2];
        to[1] = sum[slot][1] + sum[slot][3];
      }
    }
    if (!block.meet()) return false;
    const u32 tiles = least(kTileGroup, cut.tiles - first_tile);
    const u32 total = tiles * outputs;
#pragma unroll 1
    for (u32 base = 0; base < total; base += kThreads) {
      const u32 output = base + block.thread;
      float value = 0.0f;
      u32 row = 0, weight_row = task.row_end;
      if (output < total) {
        const float* from = block.shared.sums + output / outputs * kWarps * outputs + output % outputs;
        for (int warp = 0; warp < kWarps; ++warp) value += from[warp * outputs];
        row = output % outputs / kTileRows;
        weight_row = task.row_begin + (first_tile + output / outputs) * kTileRows + output % kTileRows;
        if (task.prologue == kPrologueNorm) value *= norm_scale(row);
        if (task.bias != 0 && weight_row < task.row_end) {
          value += reinterpret_cast<const float*>(task.bias)[weight_row];
        }
      }
      finish(row, weight_row, value, best, best_row);
    }
    return first_tile + kTileGroup >= cut.tiles || block.meet();  // before the next group's sums
  }

  // One output; rows of the weight at or past the end do nothing. Whole warps come here together.
  __device__ void finish(u32 row, u32 weight_row, float value, float& best, int& best_row) {
    const float next = shuffle_xor(value, 1);
    if (weight_row >= task.row_end) return;
    float* out = reinterpret_cast<float*>(task.out);
    switch (task.epilogue) {
      case kEpilogueStore:
        out[row * task.out_stride + weight_row] = value;
        break;
      case kEpilogueAddResidual: {
        const u32 at = row * task.out_stride + weight_row;
        out[at] = reinterpret_cast<const float*>(task.residual)[at] + value * task.scale;
        break;
      }
      case kEpilogueGatedMul:
        if (weight_row % 2 == 0) out[row * task.out_stride + weight_row / 2] = activated(value) * next;
        break;
      default:
        value *= task.scale;
        if (task.softcap != 0.0f) value = task.softcap * tanhf(value / task.softcap);
        out[weight_row] = value;
        if (best_row < 0 || value > best || (value != value && best == best)) {
          best = value;
          best_row = static_cast<int>(weight_row);
        }
    }
  }

  __device__ float activated(float x) const {
    switch (task.activation) {
      case kActivationGelu:
        return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
      case kActivationGeluTanh:
        return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
      default:
        return x / (1.0f + expf(-x));
    }
  }

  // The best of this task's rows, the lowest row among equals; NaN is the largest, as torch has it.
  __device__ bool argmax(float best, int best_row) {
    for (int mask = kWarp / 2; mask > 0; mask /= 2)
      keep(best, best_row, shuffle_xor(best, mask), shuffle_xor(best_row, mask));
    if (block.lane == 0) {
      block.shared.warp_value[block.warp] = best;
      block.shared.warp_index[block.warp] = best_row;
    }
    if (!block.meet()) return false;
    if (block.thread != 0) return true;
    for (int warp = 1; warp < kWarps; ++warp) {
      keep(best, best_row, block.shared.warp_value[warp], block.shared.warp_index[warp]);
    }
    *reinterpret_cast<float*>(task.best_value) = best;
    *reinterpret_cast<int*>(task.best_index) = best_row;
    return true;
  }

 public:
  __device__ static void keep(float& best, int& row, float other, int other_row) {
    const bool nan = best != best, other_nan = other != other;
    const bool equal = nan == other_nan && (nan || best == other);
    const bool better = other_nan != nan ? other_nan : other > best;
    if (row < 0 || (other_row >= 0 && (better || (equal && other_row < row)))) {
      best = other;
      row = other_row;
    }
  }
};

}  // namespace amk
