// attention of a step of several rows, or of one over a short past, on the tensor core: a run of rows at a time, in
// strips, for sets of eight queries.
//
// First values are staged. Then a warp weighs a strip for a set: its scores, and their exponentials under the strip's
// own greatest, so that no warp waits for another's. All meet. Then a warp sums the values of all strips for a set, in
// a slice of 16 columns, each strip by what its greatest score weighs under the greatest of all.
//
// What is fp32 goes into a product as hi + lo. On the left, these are the operand's upper and lower eight rows: of
// queries, and of their weights. On the right, keys take two products, and a strip is eight rows, whose values are
// there twice, hi and lo, under the same weights. Where keys and values are bf16, they take one, and a strip is 16
// rows. The step's own rows are fp32, and at most eight: one strip.
#pragma once

#include "ops/attention_rows.cuh"
#include "ops/pairs.cuh"
#include "prim/mma.cuh"

namespace amk {

template <class Config, u32 kStepRows>
struct AttentionStepOp : AttentionRows<Config, kStepRows> {
  using Rows = AttentionRows<Config, kStepRows>;
  using Run = typename Rows::Run;
  using Element = typename Rows::Element;
  using Rows::block;
  using Rows::finite;
  using Rows::kDim;
  using Rows::kStride;
  using Rows::queries;
  using Rows::task;
  using Rows::tokens;
  using Rows::work;
  static constexpr u32 kWarps = Config::kConsumerWarps;
  static constexpr u32 kStripRows = PastPieces<Config>::kStripRows;
  // The result is cut into shares: of each set so many, of so many slices each; and so many shares are a warp's.
  static constexpr u32 kShareSlices = least(Run::kSlices, divide_up(Run::kAllSlices, kWarps));
  static constexpr u32 kSetShares = divide_up(Run::kSlices, kShareSlices);
  static constexpr u32 kShares = divide_up(Run::kSets * kSetShares, kWarps);
  // Of columns of keys; beside a large share there are registers for one.
  static constexpr int kBlocksAtOnce = kShares * kShareSlices <= 2 ? 2 : 1;
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
      : Rows(block, task), cut(cut), share() {}

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
      if (rows != 0) stage_past(rows, first ? this->idle_warps() : kWarps);
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
  // Values of a run's past, which need not wait for the step's own rows. So many warps do it: the last ones.
  __device__ __forceinline__ void stage_past(u32 rows, u32 warps) const {
    const Element* values = reinterpret_cast<const Element*>(block.take());
    const u32 from_last = kWarps - 1 - block.warp, pieces = divide_up(rows, kStripRows) * Run::kSlices;
#pragma unroll 1
    for (u32 piece = from_last < warps ? from_last : pieces; piece < pieces; piece += warps) {
      const u32 strip = piece / Run::kSlices, begin = strip * kStripRows;
      stage(values + begin * kStride, rows - begin, strip, piece % Run::kSlices);
    }
    block.give_back();
  }

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
      stage(work.fresh_v[0], tokens, past, piece);
    }
  }

  // What a strip's rows weigh for a set of queries. `rows` are left from its first on, which is at position `first`.
  template <class T>
  __device__ __forceinline__ void weigh(const T* keys, u32 rows, u32 first, u32 strip, u32 set) const {
    const u32 query = set * Run::kSetQueries + block.lane / 4, row = query % tokens;
    if (set * Run::kSetQueries >= queries) return;
    // Behind the last query or row, that again.
    const float* q = work.run.q[least(query, queries - 1)];
    constexpr u32 kHalves = sizeof(T) == 4 ? 1 : 2;
    float sum[kHalves][2][4] = {};  // of eight rows each; two, so that one product need not wait for another
#pragma unroll kBlocksAtOnce
    for (int begin = 0; begin < kDim; begin += kTileColumns) {
      const int column = begin + block.lane % 4 * 8;
      const Fragment a = fragment(q, column);
#pragma unroll
      for (u32 half = 0; half < kHalves; ++half) {
        const Fragment b = fragment(keys + least(half * 8 + block.lane / 4, rows - 1) * kStride, column);
        mma_bf16(sum[half][0], a.first, b.first.x, b.first.z);
        mma_bf16(sum[half][1], a.second, b.second.x, b.second.z);
        if constexpr (sizeof(T) == 4) {
          mma_bf16(sum[half][0], a.first, b.first.y, b.first.w);
          mma_bf16(sum[half][1], a.second, b.second.y, b.second.w);
        }
      }
    }
    float weight[2 * kHalves], top = minus_infinity(), total = 0.0f;
#pragma unroll
    for (u32 i = 0; i < 2 * kHalves; ++i) {
      const u32 half = i / 2, at = half * 8 + block.lane % 4 * 2 + i % 2;
      const float (&some)[2][4] = sum[half];
      const float dot = (some[0][i % 2] + some[0][i % 2 + 2]) + (some[1][i % 2] + some[1][i % 2 + 2]);
      weight[i] = at < rows ? this->scored(dot, first + at, row) * kLog2E : minus_infinity();
      top = fmaxf(top, weight[i]);
    }
    for (int mask = 1; mask < 4; mask *= 2) top = fmaxf(top, shuffle_xor(top, mask));
#pragma unroll
    for (u32 i = 0; i < 2 * kHalves; ++i) {
      weight[i] = exp2_of(weight[i] - finite(top));
      total += weight[i];
    }
    for (int mask = 1; mask < 4; mask *= 2) total += shuffle_xor(total, mask);
    // Of fp32, the same for hi and lo.
    const uint4 pairs = pairs_of({weight[0], weight[1], weight[2 * kHalves - 2], weight[2 * kHalves - 1]});
    work.run.weight[strip][set][block.lane] = pairs;
    if (block.lane % 4 == 0) work.run.seen[strip][query] = {top, total};
  }

  // Eight neighbours; zeros behind the last of a head. What is bf16 has no lo.
  template <class T>
  __device__ __forceinline__ static Fragment fragment(const T* row, int column) {
    if constexpr (sizeof(T) == 2 && kDim % 8 == 0) {
      if (column >= kDim) return {};
      const uint4 found = *reinterpret_cast<const uint4*>(row + column);
      return {{found.x, 0, found.y, 0}, {found.z, 0, found.w, 0}};
    } else {
      return {pairs_of(Rows::four(row, column)), pairs_of(Rows::four(row, column + 4))};
    }
  }

  // A strip's values in a slice, as the right operand: a lane has eight rows' worth of two products, one for its even
  // column and one for its odd one. `rows` are left from the strip's first on; behind the last, that again, which
  // weighs nothing.
  template <class T>
  __device__ __forceinline__ void stage(const T* values, u32 rows, u32 strip, u32 slice) const {
    const int column = slice * Run::kSliceColumns + block.lane / 4 * 2;
    float2 of[4] = {};
#pragma unroll
    for (u32 i = 0; i < (sizeof(T) == 4 ? 2 : 4); ++i) {
      const u32 at = block.lane % 4 * 2 + i % 2 + i / 2 * 8;
      of[i] = two(values + least(at, rows - 1) * kStride, column);
    }
    const uint4 even = pairs_of({of[0].x, of[1].x, of[2].x, of[3].x});
    const uint4 odd = pairs_of({of[0].y, of[1].y, of[2].y, of[3].y});
    const uint4 pairs = sizeof(T) == 4 ? uint4{even.x, even.y, odd.x, odd.y} : uint4{even.x, even.z, odd.x, odd.z};
    work.run.value[strip][slice][block.lane] = pairs;
  }

  __device__ __forceinline__ static float2 pair(const float* address) {
    return *reinterpret_cast<const float2*>(address);
  }
  __device__ __forceinline__ static float2 pair(const u16* address) {
    const u32 word = *reinterpret_cast<const u32*>(address);
    return {from_bf16(word & 0xffffu), from_bf16(word >> 16)};
  }

  // Two neighbours; zeros behind the last of a head.
  template <class T>
  __device__ __forceinline__ static float2 two(const T* row, int column) {
    if (column >= kDim) return {0.0f, 0.0f};
    float2 found = pair(row + column);
    if (column + 1 >= kDim) found.y = 0.0f;
    return found;
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
