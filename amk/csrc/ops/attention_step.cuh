// attention of a step of several rows, on the tensor core: a run of rows at a time, in strips, for sets of eight
// queries. And of a step of one row over a short past, where the queries are too many for ops/attention_short.cuh.
//
// First values are staged. Then a warp weighs a strip for a set: its scores, and their exponentials under the strip's
// own greatest, so that no warp waits for another's. All meet. Then a warp sums the values of all strips for a set, in
// a slice of 16 columns, each strip by what its greatest score weighs under the greatest of all.
#pragma once

#include "ops/attention_strips.cuh"

namespace amk {

template <class Config, u32 kStepRows>
struct AttentionStepOp : AttentionStrips<Config, kStepRows> {
  using Rows = AttentionRows<Config, kStepRows>;
  using Strips = AttentionStrips<Config, kStepRows>;
  using Run = typename Rows::Run;
  using Element = typename Rows::Element;
  using Weighed = typename Strips::Weighed;
  using Rows::block;
  using Rows::finite;
  using Rows::kDim;
  using Rows::kStride;
  using Rows::queries;
  using Rows::task;
  using Rows::tokens;
  using Rows::work;
  using Strips::kStripRows;
  using Strips::kWarps;
  // The result is cut into shares: of each set so many, of so many slices each; and so many shares are a warp's.
  static constexpr u32 kShareSlices = least(Run::kSlices, divide_up(Run::kAllSlices, kWarps));
  static constexpr u32 kSetShares = divide_up(Run::kSlices, kShareSlices);
  static constexpr u32 kShares = divide_up(Run::kSets * kSetShares, kWarps);
  static_assert(kStepRows <= 8, "a step's own rows are more than a strip");

  // To a lane, of one query, four columns of each slice.
  struct Share {
    float sum[kShareSlices][4] = {};
    float top = minus_infinity();  // maximum score so far, in units of the base-2 logarithm
    float total = 0.0f;
  };

  const PastPieces<Config> cut;
  Share share[kShares];

  __device__ __forceinline__ AttentionStepOp(Block<Config>& block, const AttentionTask& task,
                                             const PastPieces<Config>& cut)
      : Strips(block, task), cut(cut), share() {}

  // False when the launch is over.
  __device__ __forceinline__ bool run() {
    u32 row = cut.low;
    bool own = task.split == 0;  // the step's own rows are still to come: behind the past, where a strip is left
#pragma unroll 1
    while (true) {
      const u32 rows = least(PastPieces<Config>::kStripsRows, cut.high - row), past = divide_up(rows, kStripRows);
      const bool with_own = own && row + rows == cut.high && past < Run::kStrips, first = row == cut.low;
      block.identify();  // again: what follows from it would hold registers that the result needs
      const u32 keys = rows == 0 ? 0 : block.hold();
      if (rows != 0) this->stage_past(rows, first ? this->idle_warps() : kWarps);
      if (first && !this->begin()) return false;
      block.identify();
      weigh_run(keys, row, rows, with_own);
      if (!block.meet()) return false;
      block.identify();
      add(past + with_own);
      row += rows;
      own = own && !with_own;
      if (row == cut.high && !own) break;
      if (!block.meet()) return false;  // before the next run's weights
    }
    finish();
    return block.meet();
  }

 private:
  // Weights of a run: of the past from position `first` on, whose keys lie in a stage of the ring; and of the step's
  // own rows, of which each is seen by itself and later ones, with the values of these.
  __device__ __forceinline__ void weigh_run(u32 keys_stage, u32 first, u32 rows, bool with_own) const {
    const Element* keys = reinterpret_cast<const Element*>(block.shared.ring[keys_stage]);
    const u32 past = divide_up(rows, kStripRows), strips = past + with_own;
#pragma unroll 1
    for (u32 item = block.warp; item < strips * Run::kSets; item += kWarps) {
      const u32 strip = item / Run::kSets, set = item % Run::kSets, begin = strip * kStripRows;
      if constexpr (sizeof(Element) == 4) {  // one product for both
        const bool own = strip == past;
        weigh(own ? work.fresh_k[0] : keys + begin * kStride, own ? tokens : rows - begin,
              own ? block.pos : first + begin, strip, set);
      } else if (strip < past) {
        weigh(keys + begin * kStride, rows - begin, first + begin, strip, set);
      } else {
        weigh(work.fresh_k[0], tokens, block.pos, strip, set);
      }
    }
    if (rows != 0) block.give_back(keys_stage);
    if (!with_own) return;
#pragma unroll 1
    for (u32 piece = kWarps - 1 - block.warp; piece < Run::kSlices; piece += kWarps) {
      this->stage(work.fresh_v[0], tokens, past, piece);
    }
  }

  // What a strip's rows weigh for a set of queries. `rows` are left from its first on, which is at position `first`.
  template <class T>
  __device__ __forceinline__ void weigh(const T* keys, u32 rows, u32 first, u32 strip, u32 set) const {
    const u32 query = set * Run::kSetQueries + block.lane / 4;
    if (set * Run::kSetQueries >= queries) return;
    constexpr u32 kHalves = sizeof(T) == 4 ? 1 : 2;
    const Weighed found = this->template weighed<kHalves, 1>(query, rows, first, [&](u32 half, int column) {
      return this->fragment(this->row_of_strip(keys, half, rows), column);
    });
    work.run.weight[strip][set][block.lane] = found.weights;
    if (block.lane % 4 == 0) work.run.seen[strip][query] = {found.top, found.total};
  }

  // This warp's i-th share: whose it is.
  __device__ __forceinline__ u32 set_of(u32 i) const { return (block.warp + i * kWarps) / kSetShares; }
  __device__ __forceinline__ u32 slice_of(u32 i) const { return (block.warp + i * kWarps) % kSetShares * kShareSlices; }

  // The values of a run under their weights, for this warp's shares.
  __device__ __forceinline__ void add(u32 strips) {
#pragma unroll
    for (u32 i = 0; i < kShares; ++i) {
      const u32 set = set_of(i), first = slice_of(i), query = set * Run::kSetQueries + block.lane / 4;
      if (set * Run::kSetQueries >= queries) continue;
      Share& mine = share[i];
      const float before = mine.top;
#pragma unroll
      for (u32 strip = 0; strip < Run::kStrips; ++strip) {
        if (strip < strips) mine.top = fmaxf(mine.top, work.run.seen[strip][query].x);
      }
      const float shrink = exp2_of(before - finite(mine.top));
      mine.total *= shrink;
#pragma unroll
      for (u32 j = 0; j < kShareSlices; ++j) {
        const u32 slice = first + j;
        if (Run::kSlices % kShareSlices != 0 && slice >= Run::kSlices) continue;
        float (&sum)[4] = mine.sum[j];
        for (float& one : sum) one *= shrink;
#pragma unroll 4
        for (u32 strip = 0; strip < strips; ++strip) {
          const float2 seen = work.run.seen[strip][query];
          const float by = exp2_of(seen.x - finite(mine.top));
          if (j == 0) mine.total += seen.y * by;
          const uint4 weight = work.run.weight[strip][set][block.lane];
          const uint4 value = work.run.value[strip][slice][block.lane];
          float even[4] = {}, odd[4] = {};
          mma_bf16(even, weight, value.x, value.y);
          mma_bf16(odd, weight, value.z, value.w);
          sum[0] += (even[0] + even[2]) * by;
          sum[1] += (odd[0] + odd[2]) * by;
          sum[2] += (even[1] + even[3]) * by;
          sum[3] += (odd[1] + odd[3]) * by;
        }
      }
    }
  }

  __device__ __forceinline__ void finish() const {
    this->append();
#pragma unroll
    for (u32 i = 0; i < kShares; ++i) {
      const u32 query = set_of(i) * Run::kSetQueries + block.lane / 4;
      if (query >= queries) continue;
      const Share& mine = share[i];
      const u32 head = query % tokens * task.heads + task.q_head + query / tokens;
      const float by = task.stats == 0 ? quotient(1.0f, mine.total) : 1.0f;
#pragma unroll
      for (u32 j = 0; j < kShareSlices; ++j) {
        const int column = (slice_of(i) + j) * Run::kSliceColumns + block.lane % 4 * 4;
        float* out = reinterpret_cast<float*>(task.out) + head * kDim + column;
        const float (&sum)[4] = mine.sum[j];
        if constexpr (kDim % 4 == 0) {
          if (column < kDim) *reinterpret_cast<float4*>(out) = {sum[0] * by, sum[1] * by, sum[2] * by, sum[3] * by};
        } else {
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            if (column + k < kDim) out[k] = sum[k] * by;
          }
        }
      }
      if (task.stats == 0 || slice_of(i) != 0 || block.lane % 4 != 0) continue;
      reinterpret_cast<float2*>(task.stats)[head] = {mine.top / kLog2E, mine.total};
    }
  }
};

}  // namespace amk
