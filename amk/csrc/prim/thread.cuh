// Who a thread is, and how threads of one block meet.
#pragma once

namespace amk {

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

constexpr int kWarp = 32;

__device__ inline int warp_index() { return static_cast<int>(threadIdx.x) / kWarp; }
__device__ inline int lane_index() { return static_cast<int>(threadIdx.x) % kWarp; }

// Named barrier `id` among `threads` threads (PTX ISA: bar.sync). Orders their memory accesses at block scope.
__device__ inline void meet(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// PTX ISA: shfl.sync.bfly.b32.
__device__ inline float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
__device__ inline int shuffle_xor(int value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

// Sum over a warp; every lane gets it, added in one fixed order.
__device__ inline float warp_sum(float value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}

// PTX ISA: vote.sync.all. True for every lane if it is for each.
__device__ inline bool all_lanes(bool value) { return __all_sync(0xffffffffu, value); }

__device__ inline void warp_sync() { __syncwarp(); }

}  // namespace amk
