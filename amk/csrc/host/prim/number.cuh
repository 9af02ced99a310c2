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

inline float minus_infinity() { return float_of(0xff800000u); }

}  // namespace amk
