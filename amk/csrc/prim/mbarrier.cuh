// Barriers in shared memory that count arrivals, and bytes where the chip can.
#pragma once

#include "prim/thread.cuh"

namespace amk {

__device__ inline u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

// PTX ISA: mbarrier.init.
__device__ inline void mbarrier_init(u64* barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// PTX ISA: mbarrier.arrive (release at block scope).
__device__ inline void mbarrier_arrive(u64* barrier) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" ::"r"(shared_address(barrier))
               : "memory");
}

}  // namespace amk
