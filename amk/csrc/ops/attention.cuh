// attention: one KV head's query group over one split of the past, by online softmax, in one fixed order.
#pragma once

#include "ops/attention_row.cuh"
#include "ops/attention_step.cuh"

namespace amk {

// Out of line, so that its registers and those of the matrix products are allotted apart.
template <class Config>
__device__ __noinline__ bool attend(Block<Config>& block, const AttentionTask& task) {
  if (block.tokens == 1) return AttentionRowOp<Config>(block, task).run();
  return AttentionStepOp<Config>(block, task).run();
}

}  // namespace amk
