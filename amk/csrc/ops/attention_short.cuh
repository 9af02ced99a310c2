// attention of a step of one row over a short past, on the tensor core: a warp a strip of rows, from its keys to the
// sum of its values, under the strip's own greatest score. All meet, and the strips' sums are put together.
//
// Values are staged before the queries have come. The step's own row is a strip of its own, and weighs one under its
// own score.
#pragma once

#include "ops/attention_strips.cuh"

namespace amk {

template <class Config>
struct AttentionShortOp : AttentionStrips<Config, 1> {
  using Rows = AttentionRows<Config, 1>;
  using Strips = AttentionStrips<Config, 1>;
  using Run = typename Rows::Run;
  using Element = typename Rows::Element;
  using Rows::block;
  using Rows::finite;
  using Rows::kDim;
  using Rows::kStride;
  using Rows::kThreads;
  using Rows::task;
  using Rows::work;
  using Strips::kStripRows;
  using Strips::kWarps;
  static constexpr u32 kGroup = Config::kGroup;
  static constexpr u32 kHalves = sizeof(Element) == 4 ? 1 : 2;
  static constexpr u32 kPast = AttentionShort<Config>::kPast;
  static constexpr u32 kColumns = divide_up(kDim, 4) * 4;
  static constexpr int kFinishLanes = 4;  // of four columns of a query

  const u32 first;  // position of the past's first row
  const u32 rows;
  const u32 strips;

  __device__ __forceinline__ AttentionShortOp(Block<Config>& block, const AttentionTask& task,
                                              const PastPieces<Config>& cut)
      : Strips(block, task),
        first(cut.low),
        rows(cut.high - cut.low),
        strips(divide_up(cut.high - cut.low, kStripRows)) {}

  // False when the launch is over.
  __device__ __forceinline__ bool run() {
    const u32 stage = rows == 0 ? 0 : block.hold();
    if (rows != 0) this->stage_past(rows, this->idle_warps());
    if (!this->begin()) return false;
    block.identify();
    const Element* keys = reinterpret_cast<const Element*>(block.shared.ring[stage]);
    const u32 parts = strips + (task.split == 0 ? kGroup : 0);
#pragma unroll 1
    for (u32 item = block.warp; item < parts; item += kWarps) {
      if (item < strips) {
        sum_strip(keys, item);
      } else {
        score_own(item - strips);
      }
    }
    if (rows != 0) block.give_back(stage);
    if (!block.meet()) return false;
    block.identify();
    this->append();
    // Whole warps, for their lanes shuffle.
    for (u32 at = block.thread; at - block.lane < kGroup * kColumns; at += kThreads) {
      const u32 from = least(at / kFinishLanes * 4, kGroup * kColumns - 4);
      finish(from / kColumns, from % kColumns, at % kFinishLanes, at < kGroup * kColumns);
    }
    return block.meet();
  }

 private:
  __device__ __forceinline__ void sum_strip(const Element* keys, u32 strip) const {
    const u32 query = block.lane / 4, begin = strip * kStripRows;
    const typename Strips::Weighed found =
        this->template weighed<kHalves, 2>(query, rows - begin, first + begin, [&](u32 half, int column) {
          return this->fragment(this->row_of_strip(keys + begin * kStride, half, rows - begin), column);
        });
    if (block.lane % 4 == 0 && query < kGroup) work.brief.seen[strip][query] = {found.top, found.total};
    float* const to = work.brief.sum[strip][least(query, kGroup - 1)] + block.lane % 4 * 4;
    constexpr u32 kAtOnce = least(Run::kSlices, 4);  // made before the first is put down: there is one branch for all
#pragma unroll
    for (u32 slice = 0; slice < Run::kSlices; slice += kAtOnce) {
      float4 sum[kAtOnce];
#pragma unroll
      for (u32 i = 0; i < kAtOnce; ++i) {
        if (slice + i < Run::kSlices) sum[i] = sum_slice(found.weights, strip, slice + i);
      }
      if (query >= kGroup) continue;
#pragma unroll
      for (u32 i = 0; i < kAtOnce; ++i) {
        if (slice + i < Run::kSlices) *reinterpret_cast<float4*>(to + (slice + i) * Run::kSliceColumns) = sum[i];
      }
    }
  }

  // Of this lane's query, four columns.
  __device__ __forceinline__ float4 sum_slice(const uint4& weights, u32 strip, u32 slice) const {
    const uint4 value = work.run.value[strip][slice][block.lane];
    float even[4] = {}, odd[4] = {};
    mma_bf16(even, weights, value.x, value.y);
    mma_bf16(odd, weights, value.z, value.w);
    return {even[0] + even[2], odd[0] + odd[2], even[1] + even[3], odd[1] + odd[3]};
  }

  // The step's own row, which split 0 sees.
  __device__ __forceinline__ void score_own(u32 query) const {
    float dot = 0.0f;
#pragma unroll
    for (int begin = 0; begin < kDim; begin += kWarp) {
      const int column = begin + block.lane;
      if (column < kDim) dot += work.run.q[query][column] * work.fresh_k[0][column];
    }
    dot = warp_sum(dot);
    if (block.lane == 0) work.brief.seen[kPast][query] = {this->capped(dot) * kLog2E, 1.0f};
  }

  // Four columns of a query: of all strips, each by what its greatest score weighs under the greatest of all. Four
  // lanes share the strips out, and all go as often through the loops: code that runs once takes long to fetch.
  __device__ __forceinline__ void finish(u32 query, int column, u32 lane, bool there) const {
    const u32 last = strips + (task.split == 0 ? 1 : 0) - 1;  // the step's own row, where the split sees it
    const auto seen_of = [&](u32 item) { return work.brief.seen[item < strips ? item : kPast][query]; };
    float top = minus_infinity();
#pragma unroll 1
    for (u32 item = lane; item - lane <= last; item += kFinishLanes) top = fmaxf(top, seen_of(least(item, last)).x);
#pragma unroll
    for (int mask = 1; mask < kFinishLanes; mask *= 2) top = fmaxf(top, shuffle_xor(top, mask));
    float4 value = {0.0f, 0.0f, 0.0f, 0.0f};
    float total = 0.0f;
#pragma unroll 1
    for (u32 item = lane; item - lane <= last; item += kFinishLanes) {
      const u32 mine = least(item, last);
      const float2 seen = seen_of(mine);
      const float4 sum = load_four((mine < strips ? work.brief.sum[mine][query] : work.fresh_v[0]) + column);
      const float by = item <= last ? exp2_of(seen.x - finite(top)) : 0.0f;
      total += seen.y * by;
      value = {value.x + sum.x * by, value.y + sum.y * by, value.z + sum.z * by, value.w + sum.w * by};
    }
#pragma unroll
    for (int mask = 1; mask < kFinishLanes; mask *= 2) {
      total += shuffle_xor(total, mask);
      value = {value.x + shuffle_xor(value.x, mask), value.y + shuffle_xor(value.y, mask),
               value.z + shuffle_xor(value.z, mask), value.w + shuffle_xor(value.w, mask)};
    }
    if (lane != 0 || !there) return;
    const float by = task.stats == 0 ? quotient(1.0f, total) : 1.0f;
    value = {value.x * by, value.y * by, value.z * by, value.w * by};
    float* const out = this->out(0) + query * kDim + column;
    if constexpr (kDim % 4 == 0) {
      *reinterpret_cast<float4*>(out) = value;
    } else {
      const float each[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (column + i < kDim) out[i] = each[i];
      }
    }
    if (task.stats != 0 && column == 0) this->stats(0)[query] = {top / kLog2E, total};
  }
};

}  // namespace amk
