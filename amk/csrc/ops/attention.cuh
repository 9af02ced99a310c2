// attention: one KV head's query group over one split of the past, by online softmax, in one fixed order.
#pragma once

#include "ops/attention_row.cuh"
#include "ops/attention_step.cuh"

namespace amk {

// A split that the past is too short for: its parts weigh nothing, and are written all the same.
template <class Config>
__device__ __forceinline__ bool empty_split(const AttentionRows<Config>& rows) {
  Block<Config>& block = rows.block;
  constexpr u32 kColumns = Config::kGroup * Config::kHeadDim;
  if (Config::kTaggedQkv && !rows.see_queries()) return false;
  for (u32 at = block.thread; at < block.tokens * kColumns; at += Block<Config>::kThreads) {
    rows.out(at / kColumns)[at % kColumns] = 0.0f;
  }
  for (u32 at = block.thread; at < block.tokens * Config::kGroup; at += Block<Config>::kThreads) {
    rows.stats(at / Config::kGroup)[at % Config::kGroup] = {minus_infinity(), 0.0f};
  }
  return block.meet();
}

// In steps of one row, or of several. False when the launch is over.
template <bool kOneRow, class Config>
__device__ __forceinline__ bool attend(Block<Config>& block, const AttentionTask& task) {
  if (!block.template open<Config::kTaggedQkv>(reinterpret_cast<const TaskHead&>(task))) return false;
  const PastPieces<Config> cut(task, block.pos);
  if (task.split != 0 && cut.low >= cut.high) return empty_split(AttentionRows<Config>(block, task));
  if constexpr (kOneRow) {
    return AttentionRowOp<Config>(block, task, cut).run();
  } else {
    return AttentionStepOp<Config>(block, task, cut).run();
  }
}

}  // namespace amk
