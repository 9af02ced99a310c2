// What attention does on the tensor core, strip by strip: what a strip's rows weigh, and their values as an operand.
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
struct AttentionStrips : AttentionRows<Config, kStepRows> {
  using Rows = AttentionRows<Config, kStepRows>;
  using Run = typename Rows::Run;
  using Element = typename Rows::Element;
  using Rows::block;
  using Rows::finite;
  using Rows::kDim;
  using Rows::kStride;
  using Rows::queries;
  using Rows::tokens;
  using Rows::work;
  static constexpr u32 kWarps = Config::kConsumerWarps;
  static constexpr u32 kStripRows = PastPieces<Config>::kStripRows;

  // Of a strip, for query lane / 4: its rows' weights as the left operand, their sum, and the score under which they
  // are made, in units of the base-2 logarithm.
  struct Weighed {
    uint4 weights;
    float top;
    float total;
  };

  __device__ __forceinline__ AttentionStrips(Block<Config>& block, const AttentionTask& task) : Rows(block, task) {}

 protected:
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

  // This lane's row of eight of a strip's; behind the last of `rows`, that again.
  template <class T>
  __device__ __forceinline__ const T* row_of_strip(const T* strip, u32 half, u32 rows) const {
    return strip + least(half * 8 + block.lane / 4, rows - 1) * kStride;
  }

  // `rows` are left from a strip's first on, which is at position `first`. `key(half, column)` is this lane's fragment
  // of the keys of its row of eight.
  template <u32 kHalves, int kBlocksAtOnce, class Key>
  __device__ __forceinline__ Weighed weighed(u32 query, u32 rows, u32 first, Key key) const {
    // Behind the last query, that again.
    const float* q = work.run.q[least(query, queries - 1)];
    float sum[kHalves][2][4] = {};  // of eight rows each; two, so that one product need not wait for another
#pragma unroll kBlocksAtOnce
    for (int begin = 0; begin < kDim; begin += kTileColumns) {
      const int column = begin + block.lane % 4 * 8;
      const Fragment a = fragment(q, column);
#pragma unroll
      for (u32 half = 0; half < kHalves; ++half) {
        const Fragment b = key(half, column);
        mma_bf16(sum[half][0], a.first, b.first.x, b.first.z);
        mma_bf16(sum[half][1], a.second, b.second.x, b.second.z);
        if constexpr (kHalves == 1) {
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
      const float score = this->scored(dot, first + at, query % tokens) * kLog2E;
      weight[i] = at < rows ? score : minus_infinity();
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
    return {pairs_of({weight[0], weight[1], weight[2 * kHalves - 2], weight[2 * kHalves - 1]}), top, total};
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
};

}  // namespace amk
