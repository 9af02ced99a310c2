// fp32 as an integer product takes it: four signed digits to the base 128, under a power of two that a warp's columns
// of a row share. The first digits make it a number below 64, each further one is worth a 128th of the one before; what
// is left out is below 2^-28 of the greatest column.
#pragma once

#include "prim/number.cuh"

namespace amk {

constexpr u32 kDigits = 4;

// What a digit is worth, in units of the first.
__device__ __forceinline__ float worth(u32 digit) { return float_of((127 - 7 * digit) << 23); }

__device__ __forceinline__ u32 larger(u32 a, u32 b) { return a < b ? b : a; }

// A magnitude as bits that are ordered as it is, NaN above all.
__device__ __forceinline__ u32 magnitude(float4 x) {
  constexpr u32 kNoSign = 0x7fffffff;
  return larger(larger(bits_of(x.x) & kNoSign, bits_of(x.y) & kNoSign),
                larger(bits_of(x.z) & kNoSign, bits_of(x.w) & kNoSign));
}

// The unit of the first digits of columns up to a magnitude, and one over it. What is not finite makes all of them NaN.
struct Unit {
  float one;
  float by;

  __device__ __forceinline__ explicit Unit(u32 greatest) {
    constexpr u32 kLeast = 32;  // of an exponent: below it units of the last digits would be no numbers
    u32 exponent = greatest >> 23;
    if (exponent < kLeast) exponent = kLeast;
    one = float_of(exponent == 255 ? 0x7fffffffu : (exponent - 5) << 23);
    by = float_of((259 - exponent) << 23);
  }
};

// The digits of four neighbours: a word for each, a byte for each neighbour.
__device__ __forceinline__ void digits_of(float4 x, float by, u32 (&words)[kDigits]) {
  constexpr float kRounds = 12582912.0f;  // 1.5 * 2^23: a sum with it is rounded to an integer, which its low bits are
  float left[4] = {x.x * by, x.y * by, x.z * by, x.w * by};
#pragma unroll
  for (u32 digit = 0; digit < kDigits; ++digit) {
    u32 bits[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float rounded = left[i] + kRounds;
      bits[i] = bits_of(rounded);
      left[i] = (left[i] - (rounded - kRounds)) * 128.0f;
    }
    words[digit] = bytes_of(bits[0], bits[1], bits[2], bits[3]);
  }
}

}  // namespace amk
