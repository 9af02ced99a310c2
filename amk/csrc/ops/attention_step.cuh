// attention of a step of several rows: every thread keeps some elements of the result, and all warps meet at each run
// of the past.
#pragma once

#include "ops/attention_rows.cuh"

namespace amk {

template <class Config>
struct AttentionStepOp : AttentionRows<Config> {
  using Rows = AttentionRows<Config>;
  using Rows::block;
  using Rows::kDim;
  using Rows::kQueries;
  using Rows::kStride;
  using Rows::kThreads;
  using Rows::kWarps;
  using Rows::queries;
  using Rows::task;
  using Rows::work;
  static constexpr int kMine = (kQueries * kDim + kThreads - 1) / kThreads;  // sums a thread keeps

  float mine[kMine];

  __device__ __forceinline__ AttentionStepOp(Block<Config>& block, const AttentionTask& task)
      : Rows(block, task), mine() {}

  // False when the launch is over.
  __device__ __forceinline__ bool run() {
    if (!this->template begin<false>()) return false;
    const PastPieces<Config> cut(task, block.pos);
    for (u32 row = cut.low; row < cut.high; row += PastPieces<Config>::kRows) {
      if (!past(row, least(PastPieces<Config>::kRows, cut.high - row))) return false;
    }
    if (task.split == 0 && !fresh()) return false;
    finish();
    return block.meet();
  }

 private:
  // A run of the past from position `first` on: a piece of k, then the piece of v of the same rows.
  __device__ __forceinline__ bool past(u32 first, u32 rows) {
    const char* k = block.take();
    for (u32 at = block.thread; at < queries * rows; at += kThreads) {
      const u32 query = at / rows, row = at % rows;
      float dot = 0.0f;
      // Each row starts at another column, so that the rows of a warp lie on different banks.
#pragma unroll 4
      for (u32 i = 0, column = row % kDim; i < kDim; ++i) {
        dot += work.run.q[query][column] * this->cached(k, row * kStride + column);
        column = column + 1 == kDim ? 0 : column + 1;
      }
      work.run.score[query][row] = this->scored(dot, first + row, query % block.tokens);
    }
    block.give_back();
    if (!block.meet()) return false;
    weigh(rows);
    if (!block.meet()) return false;
    const char* v = block.take();
    accumulate(rows, [&](u32 row, u32 column) { return this->cached(v, row * kStride + column); });
    block.give_back();
    return block.meet();  // before the next run's scores
  }

  // The step's own rows, each seen by itself and later ones.
  __device__ __forceinline__ bool fresh() {
    for (u32 at = block.thread; at < queries * block.tokens; at += kThreads) {
      const u32 query = at / block.tokens, row = at % block.tokens;
      float dot = 0.0f;
#pragma unroll 4
      for (u32 column = 0; column < kDim; ++column) dot += work.run.q[query][column] * work.fresh_k[row][column];
      work.run.score[query][row] = this->scored(dot, block.pos + row, query % block.tokens);
    }
    if (!block.meet()) return false;
    weigh(block.tokens);
    if (!block.meet()) return false;
    accumulate(block.tokens, [&](u32 row, u32 column) { return work.fresh_v[row][column]; });
    return true;
  }

  // Scores of a run to weights under the new maximum; one warp a query.
  __device__ __forceinline__ void weigh(u32 rows) {
    for (u32 query = block.warp; query < queries; query += kWarps) {
      float top = work.top[query];
      for (u32 row = block.lane; row < rows; row += kWarp) top = fmaxf(top, work.run.score[query][row]);
      for (int mask = kWarp / 2; mask > 0; mask /= 2) top = fmaxf(top, shuffle_xor(top, mask));
      // A row that has seen nothing yet weighs nothing, which minus infinity less itself would not say.
      const float shift = top == minus_infinity() ? 0.0f : top;
      float total = 0.0f;
      for (u32 row = block.lane; row < rows; row += kWarp) {
        const float weight = expf(work.run.score[query][row] - shift);
        work.run.score[query][row] = weight;
        total += weight;
      }
      total = warp_sum(total);
      warp_sync();  // every lane has read the last maximum
      if (block.lane == 0) {
        const float shrink = expf(work.top[query] - shift);
        work.shrink[query] = shrink;
        work.total[query] = work.total[query] * shrink + total;
        work.top[query] = top;
      }
    }
  }

  template <class Value>
  __device__ __forceinline__ void accumulate(u32 rows, Value value) {
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const u32 at = block.thread + i * kThreads;
      if (at >= queries * kDim) continue;
      const u32 query = at / kDim, column = at % kDim;
      float sum = mine[i] * work.shrink[query];
#pragma unroll 2
      for (u32 row = 0; row < rows; ++row) sum += work.run.score[query][row] * value(row, column);
      mine[i] = sum;
    }
  }

  __device__ __forceinline__ void finish() {
    this->append();
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const u32 at = block.thread + i * kThreads;
      if (at >= queries * kDim) continue;
      const u32 query = at / kDim, column = at % kDim;
      const u32 row = query % block.tokens, head = query / block.tokens;
      const float value = task.stats == 0 ? quotient(mine[i], work.total[query]) : mine[i];
      this->out(row)[head * kDim + column] = value;
    }
    if (task.stats == 0) return;
    for (u32 query = block.thread; query < queries; query += kThreads) {
      const u32 row = query % block.tokens, head = query / block.tokens;
      this->stats(row)[head] = {work.top[query], work.total[query]};
    }
  }
};

}  // namespace amk
