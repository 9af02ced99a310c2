// Who a thread is, and how threads of one block meet.
#pragma once

#include <math.h>

#include "host/runtime.h"

#define __device__
#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline
#define __shared__ __thread
#define __syncthreads() amk::host::meet_block()
#define threadIdx amk::host::thread_index()
#define blockIdx amk::host::block_index()

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

struct alignas(8) uint2 {
  unsigned x, y;
};

struct alignas(8) float2 {
  float x, y;
};

struct alignas(16) float4 {
  float x, y, z, w;
};

namespace amk {

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

constexpr int kWarp = 32;

inline int warp_index() { return static_cast<int>(threadIdx.x) / kWarp; }
inline int lane_index() { return static_cast<int>(threadIdx.x) % kWarp; }

inline int thread_index_anew() { return static_cast<int>(threadIdx.x); }

inline u32 anew(u32 value) { return value; }

// Out of line: what the null sanitizer of g++ inlines, it takes for null.
__attribute__((noinline)) inline char* shared_anew(char* memory) { return memory; }

inline float float_of(u32 bits) { return __builtin_bit_cast(float, bits); }
inline u32 bits_of(float value) { return __builtin_bit_cast(u32, value); }

inline float shuffle_xor(float value, int mask) { return float_of(host::exchange_xor(bits_of(value), mask)); }
inline int shuffle_xor(int value, int mask) {
  return static_cast<int>(host::exchange_xor(static_cast<u32>(value), mask));
}

inline float warp_sum(float value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}

inline float warp_max(float value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value = fmaxf(value, shuffle_xor(value, mask));
  return value;
}

// Of magnitudes, the greatest among `lanes` neighbouring lanes.
inline u32 greatest_of(u32 value, int lanes) {
  for (int mask = lanes / 2; mask > 0; mask /= 2) {
    const u32 other = host::exchange_xor(value, mask);
    if (other > value) value = other;
  }
  return value;
}

inline bool meet_all(int threads, bool value) { return host::meet_some(static_cast<u32>(threads), value); }

inline bool all_lanes(bool value) { return host::vote_all(value); }

inline void warp_sync() { host::meet_warp(); }

}  // namespace amk
