// bf16 as bits, and the pair hi + lo that carries an activation into a matrix product.
#pragma once

#include "prim/thread.cuh"

namespace amk {

inline float from_bf16(u16 bits) { return float_of(static_cast<u32>(bits) << 16); }

// Round to nearest even; NaN is the chip's one NaN.
inline u16 to_bf16(float value) {
  if (value != value) return 0x7fff;
  const u32 bits = bits_of(value);
  return static_cast<u16>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

inline u32 to_bf16x2(float low, float high) { return static_cast<u32>(to_bf16(high)) << 16 | to_bf16(low); }

inline float4 load_four(const float* address) { return *reinterpret_cast<const float4*>(address); }
inline float4 load_four(const u16* address) {
  return {from_bf16(address[0]), from_bf16(address[1]), from_bf16(address[2]), from_bf16(address[3])};
}

template <u32 kCount>
inline float sum_of(const float* address) {
  float sum = 0.0f;
  for (u32 i = 0; i < kCount; ++i) sum += address[i];
  return sum;
}

inline float quotient(float a, float b) { return a / b; }
inline float inverse_root(float x) { return 1.0f / sqrtf(x); }

constexpr float kLog2E = 1.4426950408889634f;
inline float exp2_of(float x) { return exp2f(x); }

inline u32 bytes_of(u32 a, u32 b, u32 c, u32 d) { return (a & 255) | (b & 255) << 8 | (c & 255) << 16 | d << 24; }

inline float minus_infinity() { return float_of(0xff800000u); }

}  // namespace amk
