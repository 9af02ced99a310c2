// Asynchronous copies by the bulk copy engine (sm_90 and later): one lane issues, the engine counts bytes.
#pragma once

#include "prim/mbarrier.cuh"

namespace amk {

// Arrivals that complete a phase of a copy's barrier.
constexpr u32 kCopyArrivals = 1;

// Make initialised barriers visible to the engine (PTX ISA: fence.proxy.async, fence.mbarrier_init).
__device__ inline void copy_setup() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Order global data that this thread has acquired before the copies that it issues next (PTX ISA: fence.proxy.async).
__device__ inline void copy_acquired() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// Copy `bytes` (a multiple of 16, both ends aligned to 16) to shared memory and complete one phase of `barrier`.
// The whole warp calls it. PTX ISA: mbarrier.arrive.expect_tx, cp.async.bulk.
__device__ inline void copy_async(void* to, const void* from, u32 bytes, u64* barrier, int lane) {
  if (lane != 0) return;
  asm volatile(
      "{ .reg .b64 state; mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1; }" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}

// PTX ISA: mbarrier.try_wait.parity (acquire at block scope). True once the phase of this parity is complete; the
// thread sleeps for a while before it says that it is not.
__device__ inline bool mbarrier_done(u64* barrier, u32 parity) {
  u32 done;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done)
               : "r"(shared_address(barrier)), "r"(parity)
               : "memory");
  return done != 0;
}

}  // namespace amk
