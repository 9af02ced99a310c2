// attention: one KV head's query group over one split of the past, by online softmax, in one fixed order.
#pragma once

#include "ops/attention_row.cuh"
#include "ops/attention_step.cuh"

namespace amk {

// A split that the past is too short for: its parts weigh nothing, and are written all the same.
template <class Config>
__device__ __forceinline__ bool empty_split(Block<Config>& block, const AttentionTask& task) {
  constexpr u32 kColumns = Config::kGroup * Config::kHeadDim;
  for (u32 at = block.thread; at < block.tokens * kColumns; at += Block<Config>::kThreads) {
    const u32 row = at / kColumns, column = task.q_head * Config::kHeadDim + at % kColumns;
    reinterpret_cast<float*>(task.out)[row * task.heads * Config::kHeadDim + column] = 0.0f;
  }
  for (u32 at = block.thread; at < block.tokens * Config::kGroup; at += Block<Config>::kThreads) {
    const u32 row = at / Config::kGroup, head = task.q_head + at % Config::kGroup;
    float* stats = reinterpret_cast<float*>(task.stats) + (row * task.heads + head) * 2;
    stats[0] = minus_infinity();
    stats[1] = 0.0f;
  }
  return block.meet();
}

// False when the launch is over.
template <class Config>
__device__ __forceinline__ bool attend(Block<Config>& block, const AttentionTask& task) {
  if (!block.ready(reinterpret_cast<const TaskHead&>(task))) return false;
  const PastPieces<Config> cut(task, block.pos);
  if (task.split != 0 && cut.low >= cut.high) return empty_split(block, task);
  if (block.tokens == 1) return AttentionRowOp<Config>(block, task, cut).run();
  if constexpr (Config::kTokensMax > 1) return AttentionStepOp<Config>(block, task, cut).run();
  return false;
}

}  // namespace amk
