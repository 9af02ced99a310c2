// bf16 as bits, and the pair hi + lo that carries an activation into a matrix product.
#pragma once

#include "prim/thread.cuh"

namespace amk {

__device__ inline float from_bf16(u16 bits) { return __uint_as_float(static_cast<u32>(bits) << 16); }

// PTX ISA: cvt.rn.bf16x2.f32 (round to nearest even); the low half of the word is `low`.
__device__ inline u32 to_bf16x2(float low, float high) {
  u32 word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}

__device__ inline u16 to_bf16(float value) { return static_cast<u16>(to_bf16x2(value, 0.0f) & 0xffffu); }

// The largest float below every other: the neutral element of a maximum.
__device__ inline float minus_infinity() { return __uint_as_float(0xff800000u); }

}  // namespace amk
