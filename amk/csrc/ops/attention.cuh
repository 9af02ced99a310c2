// attention: one KV head's query group over one split of the past, by online softmax, in one fixed order.
#pragma once

#include "ops/attention_row.cuh"
#include "ops/attention_short.cuh"
#include "ops/attention_step.cuh"

namespace amk {

// A split that the past is too short for: its parts weigh nothing, and are written all the same.
template <class Config, u32 kStepRows>
__device__ __forceinline__ bool empty_split(const AttentionRows<Config, kStepRows>& rows) {
  Block<Config>& block = rows.block;
  constexpr u32 kColumns = Config::kGroup * Config::kHeadDim;
  if (!rows.see_queries()) return false;
  for (u32 at = block.thread; at < rows.tokens * kColumns; at += Block<Config>::kThreads) {
    rows.out(at / kColumns)[at % kColumns] = 0.0f;
  }
  for (u32 at = block.thread; at < rows.tokens * Config::kGroup; at += Block<Config>::kThreads) {
    rows.stats(at / Config::kGroup)[at % Config::kGroup] = {minus_infinity(), 0.0f};
  }
  return block.meet();
}

// In steps of one row, or of several. A row's products over a short past are few, and the tensor core's soonest done;
// over a long one it would be lost on so few queries. False when the launch is over.
template <bool kOneRow, class Config>
__device__ __forceinline__ bool attend(Block<Config>& block, const AttentionTask& task) {
  constexpr u32 kStepRows = kOneRow ? 1 : Config::kTokensMax;
  const PastPieces<Config> cut(task, block.pos);
  if (task.split != 0 && cut.low >= cut.high) return empty_split(AttentionRows<Config, kStepRows>(block, task));
  if constexpr (kOneRow) {
    if (cut.high - cut.low > PastPieces<Config>::kStripsRows) return AttentionRowOp<Config>(block, task, cut).run();
    if constexpr (AttentionRows<Config, 1>::kShort) return AttentionShortOp<Config>(block, task, cut).run();
  }
  if constexpr (!kOneRow || !AttentionRows<Config, 1>::kShort) {
    return AttentionStepOp<Config, kStepRows>(block, task, cut).run();
  }
}

}  // namespace amk
