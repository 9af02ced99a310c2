// attention of a step of one row: each warp takes its own rows of every run of the past, by itself, and what the warps
// found is put together at the end.
//
// A cached row is spread over kLanes lanes of a warp, eight elements and more to each, so that a warp has several rows
// at work; each of these lane groups keeps a softmax of its own over the rows that fell to it. Where the query group is
// large, the warps share the queries out too.
#pragma once

#include "ops/attention_rows.cuh"

namespace amk {

__device__ constexpr int power_above(int value) {
  int power = 1;
  while (power < value) power *= 2;
  return power;
}

template <class Config>
struct AttentionRowOp : AttentionRows<Config> {
  using Rows = AttentionRows<Config>;
  using Part = AttentionPart<Config>;
  using Rows::block;
  using Rows::kDim;
  using Rows::kStride;
  using Rows::kThreads;
  using Rows::kWarps;
  using Rows::task;
  using Rows::work;
  static constexpr int kGroup = Config::kGroup;
  // Lanes of a row, vectors of four that each of them holds, and rows that a warp has at work.
  static constexpr int kLanes = power_above((kDim + 7) / 8) < kWarp ? power_above((kDim + 7) / 8) : kWarp;
  static constexpr int kVectors = (kDim + 4 * kLanes - 1) / (4 * kLanes);
  static constexpr int kAtOnce = kWarp / kLanes;
  // Sets of queries, each of so many that its state fits a thread's registers, and the warps of one.
  static constexpr int kWanted = power_above((kGroup + 2) / 3);
  static constexpr int kSets = kWanted < kWarps ? kWanted : kWarps;
  static constexpr int kQueries = (kGroup + kSets - 1) / kSets;
  static constexpr int kSetWarps = kWarps / kSets;
  // Rows of a run that the warps of a set take in one turn, and turns that they need.
  static constexpr int kInTurn = kSetWarps * kAtOnce;
  static constexpr int kTurns = (static_cast<int>(PastPieces<Config>::kRows) + kInTurn - 1) / kInTurn;
  static_assert(sizeof(Part) * kWarps * kQueries <= sizeof(work.part), "the warps' shares do not fit");

  const int set;    // of queries; kSets and more for a warp that has none
  const int first;  // row of a turn that falls to this lane
  const int sub;    // this lane, among the row's
  float4 sum[kQueries][kVectors];
  float top[kQueries];  // maximum score, in units of the base-2 logarithm
  float total[kQueries];

  __device__ __forceinline__ AttentionRowOp(Block<Config>& block, const AttentionTask& task)
      : Rows(block, task),
        set(block.warp / kSetWarps),
        first(block.warp % kSetWarps * kAtOnce + block.lane / kLanes),
        sub(block.lane % kLanes) {}

  // False when the launch is over.
  __device__ __forceinline__ bool run() {
    if (!this->begin()) return false;
    begin_softmax();
    using Element = typename Rows::Element;
    const PastPieces<Config> cut(task, block.pos);
#pragma unroll 1
    for (u32 row = cut.low; row < cut.high; row += PastPieces<Config>::kRows) {
      const int rows = static_cast<int>(least(PastPieces<Config>::kRows, cut.high - row));
      float weight[kTurns][kQueries];
      // A piece of k, then the piece of v of the same rows.
      score(reinterpret_cast<const Element*>(block.take()), rows, weight);
      block.give_back();
      weigh(weight);
      add(reinterpret_cast<const Element*>(block.take()), rows, weight);
      block.give_back();
    }
    join();
    if (!block.meet()) return false;  // the shares take the place of the queries
    put_down();
    if (!block.meet()) return false;
    finish();
    return block.meet();
  }

 private:
  // In split 0 the first lanes of a set begin with the step's own row, which weighs 1 under its own score.
  __device__ __forceinline__ void begin_softmax() {
    float weight[1][kQueries];
    score(work.fresh_k[0], task.split == 0 ? 1 : 0, weight);
    const bool own = task.split == 0 && mine(first, 1);
#pragma unroll
    for (int query = 0; query < kQueries; ++query) {
      top[query] = weight[0][query];
      total[query] = own ? 1.0f : 0.0f;
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        sum[query][i] = own ? vector(work.fresh_v[0], i) : float4{0.0f, 0.0f, 0.0f, 0.0f};
      }
    }
  }

  // This lane's i-th four elements of a row.
  template <class T>
  __device__ __forceinline__ float4 vector(const T* row, int i) const {
    const int column = (i * kLanes + sub) * 4;
    if (column >= kDim) return {0.0f, 0.0f, 0.0f, 0.0f};
    float4 found = load_four(row + column);
    if (column + 1 >= kDim) found.y = 0.0f;  // what lies behind a row is anything
    if (column + 2 >= kDim) found.z = 0.0f;
    if (column + 3 >= kDim) found.w = 0.0f;
    return found;
  }

  __device__ __forceinline__ bool mine(int row, int rows) const { return row < rows && set < kSets; }

  // The scores of this lane's rows with each query, as powers of two; the lanes of a row add their elements in one
  // fixed order. Of a row that is not there, minus infinity.
  template <class T, int kSome>
  __device__ __forceinline__ void score(const T* keys, int rows, float (&weight)[kSome][kQueries]) const {
#pragma unroll
    for (int turn = 0; turn < kSome; ++turn) {
      const int row = turn * kInTurn + first;
      float dot[kQueries] = {};
      if (mine(row, rows)) {
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
          const float4 key = vector(keys + row * kStride, i);
#pragma unroll
          for (int query = 0; query < kQueries; ++query) {
            // Behind the last query, its own again.
            const float4 own = vector(work.run.q[least(set * kQueries + query, kGroup - 1)], i);
            dot[query] += own.x * key.x + own.y * key.y + (own.z * key.z + own.w * key.w);
          }
        }
      }
#pragma unroll
      for (int query = 0; query < kQueries; ++query) {
        for (int mask = kLanes / 2; mask > 0; mask /= 2) dot[query] += shuffle_xor(dot[query], mask);
        weight[turn][query] = mine(row, rows) ? this->capped(dot[query]) * kLog2E : minus_infinity();
      }
    }
  }

  // Scores to weights under the new maximum.
  template <int kSome>
  __device__ __forceinline__ void weigh(float (&weight)[kSome][kQueries]) {
#pragma unroll
    for (int query = 0; query < kQueries; ++query) {
      float most = top[query];
#pragma unroll
      for (int turn = 0; turn < kSome; ++turn) most = fmaxf(most, weight[turn][query]);
      // A query that has seen nothing yet weighs nothing, which minus infinity less itself would not say.
      const float shift = most == minus_infinity() ? 0.0f : most;
      shrink(query, exp2_of(top[query] - shift));
      top[query] = most;
#pragma unroll
      for (int turn = 0; turn < kSome; ++turn) {
        weight[turn][query] = exp2_of(weight[turn][query] - shift);
        total[query] += weight[turn][query];
      }
    }
  }

  __device__ __forceinline__ void shrink(int query, float by) {
    total[query] *= by;
#pragma unroll
    for (int i = 0; i < kVectors; ++i) {
      float4& all = sum[query][i];
      all = {all.x * by, all.y * by, all.z * by, all.w * by};
    }
  }

  template <class T, int kSome>
  __device__ __forceinline__ void add(const T* values, int rows, const float (&weight)[kSome][kQueries]) {
#pragma unroll
    for (int turn = 0; turn < kSome; ++turn) {
      const int row = turn * kInTurn + first;
      if (!mine(row, rows)) continue;
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const float4 value = vector(values + row * kStride, i);
#pragma unroll
        for (int query = 0; query < kQueries; ++query) {
          float4& all = sum[query][i];
          const float by = weight[turn][query];
          all = {all.x + value.x * by, all.y + value.y * by, all.z + value.z * by, all.w + value.w * by};
        }
      }
    }
  }

  // The lane groups' shares, put together in the first of them.
  __device__ __forceinline__ void join() {
#pragma unroll
    for (int query = 0; query < kQueries; ++query) {
      float most = top[query];
      for (int mask = kLanes; mask < kWarp; mask *= 2) most = fmaxf(most, shuffle_xor(most, mask));
      shrink(query, exp2_of(top[query] - (most == minus_infinity() ? 0.0f : most)));
      top[query] = most;
      for (int mask = kLanes; mask < kWarp; mask *= 2) {
        total[query] += shuffle_xor(total[query], mask);
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
          float4& all = sum[query][i];
          all = {all.x + shuffle_xor(all.x, mask), all.y + shuffle_xor(all.y, mask), all.z + shuffle_xor(all.z, mask),
                 all.w + shuffle_xor(all.w, mask)};
        }
      }
    }
  }

  __device__ __forceinline__ void put_down() {
    if (block.lane >= kLanes) return;
#pragma unroll
    for (int query = 0; query < kQueries; ++query) {
      Part& part = (&work.part[0][0])[block.warp * kQueries + query];
      if (block.lane == 0) {
        part.top = top[query];
        part.total = total[query];
      }
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int column = (i * kLanes + sub) * 4;
        if (column < kDim) *reinterpret_cast<float4*>(part.sum + column) = sum[query][i];
      }
    }
  }

  // The warps' shares put together, in warp order.
  __device__ __forceinline__ void finish() {
    float* out = reinterpret_cast<float*>(task.out);
    float* stats = reinterpret_cast<float*>(task.stats);
#pragma unroll 1
    for (u32 at = block.thread; at < kGroup * kDim; at += kThreads) {
      const u32 query = at / kDim, column = at % kDim;
      const Part* part = &work.part[0][0] + query / kQueries * kSetWarps * kQueries + query % kQueries;
      float most = minus_infinity();
#pragma unroll 4
      for (int warp = 0; warp < kSetWarps; ++warp) most = fmaxf(most, part[warp * kQueries].top);
      const float shift = most == minus_infinity() ? 0.0f : most;
      float value = 0.0f, all = 0.0f;
#pragma unroll 4
      for (int warp = 0; warp < kSetWarps; ++warp) {
        const float weight = exp2_of(part[warp * kQueries].top - shift);
        value += part[warp * kQueries].sum[column] * weight;
        all += part[warp * kQueries].total * weight;
      }
      out[(task.q_head + query) * kDim + column] = task.stats == 0 ? quotient(value, all) : value;
      if (task.stats != 0 && column == 0) {
        stats[(task.q_head + query) * 2] = most / kLog2E;
        stats[(task.q_head + query) * 2 + 1] = all;
      }
    }
  }
};

}  // namespace amk
