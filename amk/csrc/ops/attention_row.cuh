// attention of a step of one row over a long past, a run of it at a time: the warps share its rows out twice, first for
// the scores, which all of them see, and then, under one maximum, for the weighted sum of the values.
//
// For the scores a cached row is spread over kLanes lanes of a warp, for the sum over as many as it has vectors of
// four. Where the query group is large, the warps share the queries out too.
#pragma once

#include "ops/attention_rows.cuh"

namespace amk {

template <class Config>
struct AttentionRowOp : AttentionRows<Config, 1> {
  using Rows = AttentionRows<Config, 1>;
  using Split = AttentionSplit<Config>;
  using Scores = typename Split::Scores;
  using Element = typename Rows::Element;
  using Rows::block;
  using Rows::finite;
  using Rows::kDim;
  using Rows::kStride;
  using Rows::kThreads;
  using Rows::task;
  using Rows::work;
  static constexpr int kGroup = Config::kGroup;
  static constexpr int kQueries = Split::kQueries;
  static constexpr u32 kSetWarps = Split::kSetWarps;
  static constexpr u32 kRows = PastPieces<Config>::kRows;  // of a piece
  static constexpr u32 kRunRows = Config::kRunRows;
  static constexpr u32 kNoRank = 1 << 16;  // behind every row, query and warp
  static_assert(kRunRows <= kNoRank && Config::kGroup <= kNoRank, "a warp without queries would seem to have some");
  // Lanes of a row while it is scored, and while it is added; vectors of four that each of them holds.
  static constexpr int kLanes = least(power_above((kDim + 7) / 8), kWarp);
  static constexpr int kVectors = (kDim + 4 * kLanes - 1) / (4 * kLanes);
  static constexpr int kSumLanes = least(power_above((kDim + 3) / 4), kWarp);
  static constexpr int kSumVectors = (kDim + 4 * kSumLanes - 1) / (4 * kSumLanes);

  const PastPieces<Config> cut;
  const u32 set;   // of queries; kSets and more for a warp that has none
  const u32 rank;  // of this warp in its set; behind every row for a warp that has no set
  u32 buffer = 0;  // of the scores: a run's are read while the next run's are made
  float4 sum[kQueries][kSumVectors];
  float top[kQueries];  // maximum score so far, in units of the base-2 logarithm
  float total[kQueries];

  __device__ __forceinline__ AttentionRowOp(Block<Config>& block, const AttentionTask& task,
                                            const PastPieces<Config>& cut)
      : Rows(block, task),
        cut(cut),
        set(block.warp / kSetWarps),
        rank(set < Split::kSets ? block.warp % kSetWarps : kNoRank),
        sum(),
        total() {
#pragma unroll
    for (int query = 0; query < kQueries; ++query) top[query] = minus_infinity();
  }

  // False when the launch is over.
  __device__ __forceinline__ bool run() {
    if (!this->begin()) return false;
    score_own();
#pragma unroll 1
    for (u32 row = cut.low; row < cut.high; row += kRunRows) {
      const u32 rows = least(kRunRows, cut.high - row);
      score(rows);
      if (!block.meet()) return false;
      weigh();
      add(rows);
      buffer ^= 1;
    }
    put_down();
    if (!block.meet()) return false;
    finish();
    return block.meet();
  }

 private:
  // A lane's i-th four elements of a row that is spread over so many lanes.
  template <int kSpread, class T>
  __device__ __forceinline__ float4 vector(const T* row, int i) const {
    return Rows::four(row, (i * kSpread + block.lane % kSpread) * 4);
  }

  // The step's own row, which split 0 sees: a warp a query.
  __device__ __forceinline__ void score_own() const {
    for (u32 i = rank; i < kQueries; i += kSetWarps) {
      const u32 query = set * kQueries + i;
      float dot = 0.0f;
      if (task.split == 0 && query < kGroup) {
        for (int column = block.lane; column < kDim; column += kWarp) {
          dot += work.run.q[query][column] * work.fresh_k[0][column];
        }
      }
      dot = warp_sum(dot);
      if (block.lane == 0) work.split.own[query] = task.split == 0 ? this->capped(dot) * kLog2E : minus_infinity();
    }
  }

  // Scores of a run as powers of two, and the greatest that this warp has made.
  __device__ __forceinline__ void score(u32 rows) const {
    float4 own[kQueries][kVectors];
    Scores most;
#pragma unroll
    for (int query = 0; query < kQueries; ++query) {
      most.of[query] = minus_infinity();
      // Behind the last query, its own again.
      const float* q = work.run.q[least(set * kQueries + query, kGroup - 1)];
#pragma unroll
      for (int i = 0; i < kVectors; ++i) own[query][i] = vector<kLanes>(q, i);
    }
#pragma unroll 1
    for (u32 begin = 0; begin < rows; begin += kRows) {
      const Element* keys = reinterpret_cast<const Element*>(block.take());
      const u32 here = least(kRows, rows - begin);
      constexpr u32 kAtOnce = kWarp / kLanes;
#pragma unroll 2
      for (u32 base = rank * kAtOnce; base < here; base += kSetWarps * kAtOnce) {
        const u32 mine = base + block.lane / kLanes, row = least(mine, here - 1);  // behind the last, that again
        float dot[kQueries] = {};
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
          const float4 key = vector<kLanes>(keys + row * kStride, i);
#pragma unroll
          for (int query = 0; query < kQueries; ++query) {
            const float4& q = own[query][i];
            dot[query] += q.x * key.x;
            dot[query] += q.y * key.y;
            dot[query] += q.z * key.z;
            dot[query] += q.w * key.w;
          }
        }
        Scores made;
#pragma unroll
        for (int query = 0; query < kQueries; ++query) {
          for (int mask = kLanes / 2; mask > 0; mask /= 2) dot[query] += shuffle_xor(dot[query], mask);
          made.of[query] = this->capped(dot[query]) * kLog2E;
          most.of[query] = fmaxf(most.of[query], made.of[query]);
        }
        if (mine < here && block.lane % kLanes == 0) work.split.score[buffer][set][begin + mine] = made;
      }
      block.give_back();
    }
#pragma unroll
    for (int query = 0; query < kQueries; ++query) most.of[query] = warp_max(most.of[query]);
    if (block.lane == 0) work.split.most[buffer][block.warp] = most;
  }

  // The maximum that all warps of the set now know; what was added under the last one shrinks.
  __device__ __forceinline__ void weigh() {
    const Scores most = work.split.most[buffer][least(set, Split::kSets - 1) * kSetWarps + block.lane % kSetWarps];
#pragma unroll
    for (int query = 0; query < kQueries; ++query) {
      const float now = fmaxf(top[query], warp_max(most.of[query]));
      const float by = exp2_of(top[query] - finite(now));
      top[query] = now;
      total[query] *= by;
#pragma unroll
      for (int i = 0; i < kSumVectors; ++i) {
        float4& all = sum[query][i];
        all = {all.x * by, all.y * by, all.z * by, all.w * by};
      }
    }
  }

  // The values of a run under their weights.
  __device__ __forceinline__ void add(u32 rows) {
#pragma unroll 1
    for (u32 begin = 0; begin < rows; begin += kRows) {
      const Element* values = reinterpret_cast<const Element*>(block.take());
      const u32 here = least(kRows, rows - begin);
      constexpr u32 kAtOnce = kWarp / kSumLanes;
#pragma unroll 2
      for (u32 row = rank * kAtOnce + block.lane / kSumLanes; row < here; row += kSetWarps * kAtOnce) {
        const Scores scores = work.split.score[buffer][set][begin + row];
        float weight[kQueries];
#pragma unroll
        for (int query = 0; query < kQueries; ++query) {
          weight[query] = exp2_of(scores.of[query] - finite(top[query]));
          total[query] += weight[query];
        }
#pragma unroll
        for (int i = 0; i < kSumVectors; ++i) {
          const float4 value = vector<kSumLanes>(values + row * kStride, i);
#pragma unroll
          for (int query = 0; query < kQueries; ++query) {
            float4& all = sum[query][i];
            const float by = weight[query];
            all = {all.x + value.x * by, all.y + value.y * by, all.z + value.z * by, all.w + value.w * by};
          }
        }
      }
      block.give_back();
    }
  }

  // This warp's share. Its lanes' rows are put together on the way.
  __device__ __forceinline__ void put_down() {
#pragma unroll
    for (int query = 0; query < kQueries; ++query) {
      for (int mask = kSumLanes; mask < kWarp; mask *= 2) {
        total[query] += shuffle_xor(total[query], mask);
#pragma unroll
        for (int i = 0; i < kSumVectors; ++i) {
          float4& all = sum[query][i];
          all = {all.x + shuffle_xor(all.x, mask), all.y + shuffle_xor(all.y, mask), all.z + shuffle_xor(all.z, mask),
                 all.w + shuffle_xor(all.w, mask)};
        }
      }
      if (rank >= kSetWarps) continue;
      if (block.lane == 0) {
        work.split.total[set * kQueries + query][rank] = total[query];
        if (rank == 0) work.split.top[set * kQueries + query] = top[query];
      }
#pragma unroll
      for (int i = 0; i < kSumVectors; ++i) {
        const int column = (i * kSumLanes + block.lane) * 4;
        if (block.lane < kSumLanes && column < kDim) {
          *reinterpret_cast<float4*>(work.split.part[set * kQueries + query][rank] + column) = sum[query][i];
        }
      }
    }
  }

  // The warps' shares put together, in warp order, and the step's own row.
  __device__ __forceinline__ void finish() const {
    float* const out = this->out(0);
#pragma unroll 1
    for (u32 at = block.thread; at < kGroup * kDim; at += kThreads) {
      const u32 query = at / kDim, column = at % kDim;
      float value = 0.0f;
#pragma unroll
      for (u32 warp = 0; warp < kSetWarps; ++warp) value += work.split.part[query][warp][column];
      const float past = work.split.top[query], own = work.split.own[query];
      const float most = fmaxf(past, own);
      const float shrink = exp2_of(past - finite(most)), weight = exp2_of(own - finite(most));
      const float all = sum_of<kSetWarps>(work.split.total[query]) * shrink + weight;
      value *= shrink;
      if (task.split == 0) value += work.fresh_v[0][column] * weight;
      out[at] = task.stats == 0 ? quotient(value, all) : value;
      if (task.stats != 0 && column == 0) this->stats(0)[query] = {most / kLog2E, all};
    }
    this->append();
  }
};

}  // namespace amk
