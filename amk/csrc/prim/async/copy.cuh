// Asynchronous copies by the lanes of a warp (sm_80): each lane copies 16-byte words and arrives when they have landed.
#pragma once

#include "prim/mbarrier.cuh"

namespace amk {

constexpr u32 kCopyArrivals = kWarp;

__device__ inline void copy_setup() {}
__device__ inline void copy_acquired() {}

// As in bulk/copy.cuh. PTX ISA: cp.async.cg, cp.async.mbarrier.arrive.noinc.
__device__ inline void copy_async(void* to, const void* from, u32 bytes, u64* barrier, int lane) {
  const u32 target = shared_address(to);
  const char* source = static_cast<const char*>(from);
  for (u32 at = 16 * lane; at < bytes; at += 16 * kWarp) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(target + at), "l"(source + at) : "memory");
  }
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// PTX ISA: mbarrier.test_wait.parity (acquire at block scope). True once the phase of this parity is complete.
__device__ inline bool mbarrier_done(u64* barrier, u32 parity) {
  u32 done;
  asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done)
               : "r"(shared_address(barrier)), "r"(parity)
               : "memory");
  return done != 0;
}

}  // namespace amk
