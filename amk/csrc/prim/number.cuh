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

// Four neighbours in one access; `address` is aligned to them.
__device__ inline float4 load_four(const float* address) { return *reinterpret_cast<const float4*>(address); }
__device__ inline float4 load_four(const u16* address) {
  const uint2 words = *reinterpret_cast<const uint2*>(address);
  return {__uint_as_float(words.x << 16), __uint_as_float(words.x & 0xffff0000u), __uint_as_float(words.y << 16),
          __uint_as_float(words.y & 0xffff0000u)};
}

// Of neighbours, in one fixed order; `address` is aligned to four.
template <u32 kCount>
__device__ inline float sum_of(const float* address) {
  float sum = 0.0f;
#pragma unroll
  for (u32 i = 0; i + 4 <= kCount; i += 4) {
    const float4 some = load_four(address + i);
    sum += some.x + some.y + (some.z + some.w);
  }
#pragma unroll
  for (u32 i = kCount / 4 * 4; i < kCount; ++i) sum += address[i];
  return sum;
}

// a / b to 2 ulp, and 1 / sqrt(x) to 2^-22.9 of it: no branch for the cases that the exact ones need it for.
// PTX ISA: div.full.f32, rsqrt.approx.ftz.f32.
__device__ inline float quotient(float a, float b) {
  float found;
  asm("div.full.f32 %0, %1, %2;" : "=f"(found) : "f"(a), "f"(b));
  return found;
}
__device__ inline float inverse_root(float x) {
  float found;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(found) : "f"(x));
  return found;
}

// 2^x, to 2^-22 of it. PTX ISA: ex2.approx.ftz.f32.
constexpr float kLog2E = 1.4426950408889634f;
__device__ inline float exp2_of(float x) {
  float found;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(found) : "f"(x));
  return found;
}

// The low bytes of four words, in this order. PTX ISA: prmt.b32.
__device__ inline u32 bytes_of(u32 a, u32 b, u32 c, u32 d) {
  return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

// The largest float below every other: the neutral element of a maximum.
__device__ inline float minus_infinity() { return __uint_as_float(0xff800000u); }

}  // namespace amk
