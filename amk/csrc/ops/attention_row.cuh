// attention of a step of one row: each warp takes its own rows of every run of the past, by itself, and what the warps
// found is put together at the end.
#pragma once

#include "ops/attention_rows.cuh"

namespace amk {

template <class Config>
struct AttentionRowOp : AttentionRows<Config> {
  using Rows = AttentionRows<Config>;
  using Rows::block;
  using Rows::kDim;
  using Rows::kStride;
  using Rows::kThreads;
  using Rows::kWarps;
  using Rows::task;
  using Rows::work;
  static constexpr int kGroup = Config::kGroup;
  static constexpr int kEach = (kDim + kWarp - 1) / kWarp;  // elements of a head that a lane holds

  float q[kGroup][kEach];
  float sum[kGroup][kEach];
  float top[kGroup];
  float total[kGroup];

  __device__ AttentionRowOp(Block<Config>& block, const AttentionTask& task) : Rows(block, task) {}

  // False when the launch is over.
  __device__ bool run() {
    if (!this->begin()) return false;
#pragma unroll
    for (int query = 0; query < kGroup; ++query) {
      top[query] = minus_infinity();
      total[query] = 0.0f;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int column = block.lane + i * kWarp;
        q[query][i] = column < kDim ? work.run.q[query][column] : 0.0f;
        sum[query][i] = 0.0f;
      }
    }
    const PastPieces<Config> cut(task, block.pos);
    for (u32 row = cut.low; row < cut.high; row += PastPieces<Config>::kRows) {
      if (!past(row, least(PastPieces<Config>::kRows, cut.high - row))) return false;
    }
    if (task.split == 0 && block.warp == 0) {
      score(block.pos, 0, [&](int column) { return work.fresh_k[0][column]; });
      weigh(0, 1, [&](u32, int column) { return work.fresh_v[0][column]; });
    }
    if (!block.meet()) return false;  // the shares take the place of other warps' scores
    put_down();
    if (!block.meet()) return false;
    finish();
    return true;
  }

 private:
  // A piece of k, then the piece of v of the same rows. Rows are dealt out to the warps in turn.
  __device__ bool past(u32 first, u32 rows) {
    const char* k = block.take();
    if (k == nullptr) return false;
#pragma unroll 1
    for (u32 row = block.warp; row < rows; row += kWarps) {
      score(first + row, row, [&](int column) { return this->cached(k, row * kStride + column); });
    }
    block.give_back();  // and every lane sees the scores of its warp
    const char* v = block.take();
    if (v == nullptr) return false;
    weigh(block.warp, rows, [&](u32 row, int column) { return this->cached(v, row * kStride + column); });
    block.give_back();
    return true;
  }

  // The scores of one row with every query; lanes add their elements in one fixed order.
  template <class Key>
  __device__ void score(u32 position, u32 row, Key key) {
    float dot[kGroup] = {};
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int column = block.lane + i * kWarp;
      if (column >= kDim) continue;
      const float value = key(column);
#pragma unroll
      for (int query = 0; query < kGroup; ++query) dot[query] += q[query][i] * value;
    }
#pragma unroll
    for (int query = 0; query < kGroup; ++query) {
      const float made = this->scored(warp_sum(dot[query]), position, 0);
      if (block.lane == 0) work.run.score[query][row] = made;
    }
    warp_sync();
  }

  // This warp's rows of a run, from `row` on, weighed by their scores under the new maximum.
  template <class Value>
  __device__ void weigh(u32 first, u32 rows, Value value) {
    if (first >= rows) return;
#pragma unroll
    for (int query = 0; query < kGroup; ++query) {
      float next = top[query];
#pragma unroll 1
      for (u32 row = first; row < rows; row += kWarps) next = fmaxf(next, work.run.score[query][row]);
      // A query that has seen nothing yet weighs nothing, which minus infinity less itself would not say.
      const float shift = next == minus_infinity() ? 0.0f : next;
      const float shrink = expf(top[query] - shift);
      top[query] = next;
      total[query] *= shrink;
#pragma unroll
      for (int i = 0; i < kEach; ++i) sum[query][i] *= shrink;
#pragma unroll 1
      for (u32 row = first; row < rows; row += kWarps) {
        const float weight = expf(work.run.score[query][row] - shift);
        total[query] += weight;
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          const int column = block.lane + i * kWarp;
          if (column < kDim) sum[query][i] += weight * value(row, column);
        }
      }
    }
    warp_sync();  // before the next run's scores
  }

  __device__ void put_down() {
#pragma unroll
    for (int query = 0; query < kGroup; ++query) {
      AttentionPart<Config>& part = work.part[block.warp][query];
      if (block.lane == 0) {
        part.top = top[query];
        part.total = total[query];
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int column = block.lane + i * kWarp;
        if (column < kDim) part.sum[column] = sum[query][i];
      }
    }
  }

  // The warps' shares put together, in warp order.
  __device__ void finish() {
    float* out = reinterpret_cast<float*>(task.out);
    float* stats = reinterpret_cast<float*>(task.stats);
#pragma unroll 1
    for (u32 at = block.thread; at < kGroup * kDim; at += kThreads) {
      const u32 query = at / kDim, column = at % kDim;
      float most = minus_infinity();
#pragma unroll 1
      for (int warp = 0; warp < kWarps; ++warp) most = fmaxf(most, work.part[warp][query].top);
      const float shift = most == minus_infinity() ? 0.0f : most;
      float value = 0.0f, all = 0.0f;
#pragma unroll 1
      for (int warp = 0; warp < kWarps; ++warp) {
        const AttentionPart<Config>& part = work.part[warp][query];
        const float weight = expf(part.top - shift);
        value += part.sum[column] * weight;
        all += part.total * weight;
      }
      out[(task.q_head + query) * kDim + column] = task.stats == 0 ? value / all : value;
      if (task.stats != 0 && column == 0) {
        stats[(task.q_head + query) * 2] = most;
        stats[(task.q_head + query) * 2 + 1] = all;
      }
    }
  }
};

}  // namespace amk
