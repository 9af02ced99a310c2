// Who a thread is, and how threads of one block meet.
#pragma once

namespace amk {

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

constexpr int kWarp = 32;

__device__ inline int warp_index() { return static_cast<int>(threadIdx.x) / kWarp; }
__device__ inline int lane_index() { return static_cast<int>(threadIdx.x) % kWarp; }

// The thread's index, read anew: the compiler keeps nothing that follows from an earlier reading in registers.
__device__ inline int thread_index_anew() {
  u32 index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));  // PTX ISA: special registers
  return static_cast<int>(index);
}

// The same value, of which the compiler knows nothing from before.
__device__ inline u32 anew(u32 value) {
  asm volatile("" : "+r"(value));
  return value;
}

// The block's shared memory at an address that the compiler keeps: else it would make it again wherever it is used.
__device__ inline char* shared_anew(char* memory) {
  return static_cast<char*>(__cvta_shared_to_generic(anew(static_cast<u32>(__cvta_generic_to_shared(memory)))));
}

// The first `threads` threads of the block meet at a barrier of their own; true for each of them if `value` is for all.
// Orders their memory accesses at block scope. PTX ISA: barrier.red.and.pred.
__device__ inline bool meet_all(int threads, bool value) {
  u32 all;
  asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; barrier.cta.red.and.pred q, 1, %2, p; selp.u32 %0, 1, 0, q; }"
               : "=r"(all)
               : "r"(static_cast<u32>(value)), "r"(threads)
               : "memory");
  return all != 0;
}

__device__ inline float float_of(u32 bits) { return __uint_as_float(bits); }
__device__ inline u32 bits_of(float value) { return __float_as_uint(value); }

// PTX ISA: shfl.sync.bfly.b32.
__device__ inline float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
__device__ inline int shuffle_xor(int value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

// Sum over a warp; every lane gets it, added in one fixed order.
__device__ inline float warp_sum(float value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}

// Maximum over a warp; every lane gets it. Floats are ordered as integers are, once those of a sign are turned about.
// PTX ISA: redux.sync.max.s32.
__device__ inline float warp_max(float value) {
  const int bits = __float_as_int(value);
  const int most = __reduce_max_sync(0xffffffffu, bits ^ ((bits >> 31) & 0x7fffffff));
  return __int_as_float(most ^ ((most >> 31) & 0x7fffffff));
}

// The greatest among `lanes` neighbouring lanes, a power of two. PTX ISA: redux.sync.max.u32 of all of a warp.
__device__ inline u32 greatest_of(u32 value, int lanes) {
  if (lanes == kWarp) return __reduce_max_sync(0xffffffffu, value);
  for (int mask = lanes / 2; mask > 0; mask /= 2) {
    const u32 other = __shfl_xor_sync(0xffffffffu, value, mask);
    value = other > value ? other : value;
  }
  return value;
}

// PTX ISA: vote.sync.all. True for every lane if it is for each.
__device__ inline bool all_lanes(bool value) { return __all_sync(0xffffffffu, value); }

__device__ inline void warp_sync() { __syncwarp(); }

}  // namespace amk
