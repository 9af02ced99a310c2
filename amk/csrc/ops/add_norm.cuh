// add_norm: a block's output, normed, added to the residual stream; the columns of one task.
#pragma once

#include "prim/number.cuh"
#include "vm/block.cuh"

namespace amk {

template <class Config>
struct AddNormOp {
  static constexpr u32 kThreads = Config::kConsumerWarps * kWarp;

  Block<Config>& block;
  const AddNormTask& task;

  // False when the launch is over.
  __device__ __forceinline__ bool run() {
    if (!block.ready(reinterpret_cast<const TaskHead&>(task))) return false;
#pragma unroll 1
    for (u32 row = 0; row < block.tokens; ++row) {
      const float* x = reinterpret_cast<const float*>(task.x) + row * task.x_stride;
      float squares = 0.0f;
      for (u32 column = block.thread; column < task.k; column += kThreads) squares += x[column] * x[column];
      const float scale = inverse_root(quotient(block.sum(squares), task.k) + task.eps);
      if (!block.good) return false;
      const float* gain = reinterpret_cast<const float*>(task.gain);
      const float* residual = reinterpret_cast<const float*>(task.residual) + row * task.out_stride;
      float* out = reinterpret_cast<float*>(task.out) + row * task.out_stride;
      for (u32 column = task.column_begin + block.thread; column < task.column_end; column += kThreads) {
        out[column] = residual[column] + x[column] * scale * gain[column] * task.scale;
      }
    }
    return block.meet();
  }
};

}  // namespace amk
