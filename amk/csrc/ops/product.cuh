// The product of a warp: blocks of weights by the columns of x that it has staged, on the tensor core.
//
// A tile has eight weight rows, and the tensor core multiplies sixteen rows by eight. Where a step has one row, weights
// are the left operand: its lower eight rows are the upper ones again, with the other half of the block's columns. The
// right one's eight are what x is split into, of either half: hi and lo, or four digits. Of the sums those count whose
// halves agree. So one product takes a block, and a lane holds two words of x for it. Where a step has several rows, x
// is the left operand: hi and lo of eight rows, or the digits of four, and a block takes two products, or two for each
// four rows.
#pragma once

#include "ops/digits.cuh"
#include "ops/pairs.cuh"
#include "prim/mma.cuh"
#include "vm/stream.cuh"

namespace amk {

// What both ways have in common: blocks of the shape, and sums of it in one lane. Those of integers are integers, but
// for those of groups of columns: each of these has its scale.
template <class Shape>
struct ProductOf {
  static constexpr bool kGrouped = Shape::kGroupColumns != 0;
  static constexpr u32 kBlockColumns = Shape::kQuantized ? kIntegerColumns : kTileColumns;
  using Raw = typename Chosen<Shape::kQuantized, int, float>::Type;
  using Sum = typename Chosen<Shape::kQuantized && !kGrouped, int, float>::Type;
};

template <class Shape>
struct OneRowProduct : ProductOf<Shape> {
  using Of = ProductOf<Shape>;
  using typename Of::Raw;
  using typename Of::Sum;
  static constexpr u32 kSums = Of::kGrouped ? 1 : 4;

  struct Held {
    u32 low;
    u32 high;
  };
  struct Sums {
    Sum of[kSums];
  };

  // Words of four staged columns: hi of all, then lo.
  __device__ __forceinline__ static uint4 pairs(float4 x) {
    const uint4 found = pairs_of(x);
    return {found.x, found.z, found.y, found.w};
  }

  // Where a digit's word of four columns lies among those of sixteen: a lane's two are neighbours.
  __device__ __forceinline__ static u32 place_of(u32 word) { return word % 2 * 2 + word / 2; }

  // This lane's of the block that is `at` blocks into the chunk: of column lane / 4 of the right operand. A lane has
  // four words of weights, of which the first and the third are of the first half. Zeros where the block is not
  // `there`, and in columns that pairs leave: chosen, for to branch and to meet again takes longer than to read what is
  // not used.
  __device__ __forceinline__ static Held held(const u32* staged, u32, u32, u32 lane, u32 at, bool there) {
    const u32 column = lane / 4, within = lane % 4;
    const u32* block = staged + at * Of::kBlockColumns;
    if constexpr (Shape::kQuantized) {
      const uint2 words = *reinterpret_cast<const uint2*>(block + within * 16 + column % kDigits * 4 + column / 4 * 2);
      return {there ? words.x : 0, there ? words.y : 0};
    } else {
      block += within * 8 + column % 2 * 2 + column / 2 % 2;
      const u32 low = block[0], high = block[4];
      there = there && column < 4;
      return {there ? low : 0, there ? high : 0};
    }
  }

  // `scale(row)` is of the block's columns in a row of the tile, where these have scales of their own.
  template <class Scale>
  __device__ __forceinline__ static void add(Sums& sums, u32 lane, const uint4& w, const Held& x, Scale scale) {
    if constexpr (Of::kGrouped) {
      int some[4] = {};
      mma_s8(some, w, x.low, x.high);
      sums.of[0] += scale(lane / 4) * own(lane, some);
    } else if constexpr (Shape::kQuantized) {
      mma_s8(sums.of, w, x.low, x.high);
    } else {
      mma_bf16(sums.of, w, x.low, x.high);
    }
  }

  // The sum of weight row lane / 4, in each four lanes' first.
  __device__ __forceinline__ static float total(const Sums& sums, u32 lane) {
    float sum;
    if constexpr (Of::kGrouped) {
      sum = sums.of[0];
    } else {
      sum = own(lane, sums.of);
    }
    sum += shuffle_xor(sum, 1);
    if (Shape::kQuantized) sum += shuffle_xor(sum, 2);
    return sum;
  }

 private:
  // What counts of this lane's sums. Its weight row is lane / 4 of the tile, of the first half in the first two.
  __device__ __forceinline__ static float own(u32 lane, const Raw (&sum)[4]) {
    const u32 pair = lane % 4;
    if constexpr (Shape::kQuantized) {
      const Raw more = pair < 2 ? sum[0] : sum[2], less = pair < 2 ? sum[1] : sum[3];
      return (static_cast<float>(more) + static_cast<float>(less) * worth(1)) * worth(pair % 2 * 2);
    } else {
      return pair == 0 ? sum[0] + sum[1] : sum[2] + sum[3];  // in the last two lanes of four nothing but zeros
    }
  }
};

// `kRows` rows at most.
template <class Shape, u32 kRows>
struct RowsProduct : ProductOf<Shape> {
  using Of = ProductOf<Shape>;
  using typename Of::Raw;
  using typename Of::Sum;

  // Rows of the step whose digits one product takes, and products that take all of them.
  static constexpr u32 kDigitRows = kTileRows / 2;
  static constexpr u32 kProducts = divide_up(kRows, kDigitRows);
  // Sums of bf16 are two, so that one product need not wait for the other.
  static constexpr u32 kTerms = Shape::kQuantized ? kProducts : 2;

  struct Held {
    uint4 of[Shape::kQuantized ? 2 * kProducts : 2];
  };
  struct Sums {
    Sum of[kTerms][4];
  };

  __device__ __forceinline__ static uint4 pairs(float4 x) { return pairs_of(x); }
  __device__ __forceinline__ static u32 place_of(u32 word) { return word; }

  // Of pairs row lane / 4, eight columns from lane % 4 * 8 on; of digits the left operand's rows lane / 4 and eight
  // further down: a digit of a row of the step each, 16 columns from lane % 4 * 16 on. Behind the last row, some row
  // again: what is made of it goes unread.
  __device__ __forceinline__ static Held held(const u32* staged, u32 stride, u32 rows, u32 lane, u32 at, bool) {
    const u32 left_row = lane / 4;
    Held found;
    if constexpr (Shape::kQuantized) {
      const u32 place = at * kIntegerColumns + lane % 4 * 16 + left_row % kDigits * 4;
#pragma unroll
      for (u32 i = 0; i < 2 * kProducts; ++i) {
        const u32 row = least(left_row / kDigits + i * kDigitRows / 2, rows - 1);
        found.of[i] = *reinterpret_cast<const uint4*>(staged + row * stride + place);
      }
    } else {
      const u32 place = least(left_row, rows - 1) * stride + at * kTileColumns + lane % 4 * 8;
      found.of[0] = *reinterpret_cast<const uint4*>(staged + place);
      found.of[1] = *reinterpret_cast<const uint4*>(staged + place + 4);
    }
    return found;
  }

  template <class Scale>
  __device__ __forceinline__ static void add(Sums& sums, u32 lane, const uint4& w, const Held& x, Scale scale) {
    if constexpr (!Shape::kQuantized) {
      mma_bf16(sums.of[0], x.of[0], w.x, w.y);
      mma_bf16(sums.of[1], x.of[1], w.z, w.w);
    } else if constexpr (!Of::kGrouped) {
      multiply_digits(sums.of, w, x);
    } else {
      int some[kTerms][4] = {};
      multiply_digits(some, w, x);
#pragma unroll
      for (u32 odd = 0; odd < 2; ++odd) {
        const float by = scale(lane % 4 * 2 + odd);
#pragma unroll
        for (u32 term = 0; term < kTerms; ++term) {
          sums.of[term][odd] += by * static_cast<float>(some[term][odd]);
          sums.of[term][odd + 2] += by * static_cast<float>(some[term][odd + 2]);
        }
      }
    }
  }

  // `put(row, weight_row, sum)`, row of the step and of the tile; `unit(row)` is what integers are in units of.
  template <class Unit, class Put>
  __device__ __forceinline__ static void each(const Sums& sums, u32 lane, u32 rows, Unit unit, Put put) {
    const u32 left_row = lane / 4, weight_row = lane % 4 * 2;
    if constexpr (!Shape::kQuantized) {
      if (left_row >= rows) return;  // those of hi and lo are one
      put(left_row, weight_row, (sums.of[0][0] + sums.of[0][2]) + (sums.of[1][0] + sums.of[1][2]));
      put(left_row, weight_row + 1, (sums.of[0][1] + sums.of[0][3]) + (sums.of[1][1] + sums.of[1][3]));
    } else {
      // Each digit at its worth; those of a row of the step are four lanes', which add them up. As floats the sums of
      // 2,048 columns are exact.
      const float by = worth(left_row % kDigits);
#pragma unroll
      for (u32 half = 0; half < 2 * kProducts; ++half) {
        const u32 term = half / 2, first = half % 2 * 2;
        const u32 row = left_row / kDigits + half * kDigitRows / 2;
        float even = static_cast<float>(sums.of[term][first]) * by;
        float odd = static_cast<float>(sums.of[term][first + 1]) * by;
#pragma unroll
        for (int mask = 4; mask < 4 * static_cast<int>(kDigits); mask *= 2) {
          even += shuffle_xor(even, mask);
          odd += shuffle_xor(odd, mask);
        }
        if (left_row % kDigits != 0 || row >= rows) continue;
        const float one = unit(row);
        put(row, weight_row, even * one);
        put(row, weight_row + 1, odd * one);
      }
    }
  }

 private:
  __device__ __forceinline__ static void multiply_digits(int (&sum)[kTerms][4], const uint4& w, const Held& x) {
#pragma unroll
    for (u32 i = 0; i < kProducts; ++i) {
      const uint4 &upper = x.of[2 * i], &lower = x.of[2 * i + 1];
      mma_s8(sum[i], {upper.x, lower.x, upper.y, lower.y}, w.x, w.y);
      mma_s8(sum[i], {upper.z, lower.z, upper.w, lower.w}, w.z, w.w);
    }
  }
};

template <class Shape, u32 kRows>
using Product = typename Chosen<kRows == 1, OneRowProduct<Shape>, RowsProduct<Shape, kRows>>::Type;

}  // namespace amk
