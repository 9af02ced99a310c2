// Loads, stores and fences whose order matters between blocks or with the host. Plain accesses are written plainly.
#pragma once

#include "prim/thread.cuh"

namespace amk {

// PTX ISA: ld.acquire.gpu. A wait on a counter.
__device__ inline u32 load_acquire(const u32* address) {
  u32 value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

// PTX ISA: ld.relaxed.gpu. A look that orders nothing.
__device__ inline u32 load_relaxed(const u32* address) {
  u32 value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

// PTX ISA: red.release.gpu. A signal; cumulative over what this thread has met at a barrier.
__device__ inline void add_release(u32* address, u32 value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

// PTX ISA: ld.relaxed.sys, st.relaxed.sys. Words that the host writes or reads during a launch; each speaks for itself.
__device__ inline u32 load_host(const u32* address) {
  u32 value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

__device__ inline void store_host(u32* address, u32 value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

// PTX ISA: st.relaxed.gpu.
__device__ inline void store_relaxed(u32* address, u32 value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

// Flags that warps of one block poll; volatile, so that a spin sees them change.
__device__ inline u32 load_flag(const u32* flag) { return *static_cast<const volatile u32*>(flag); }
__device__ inline void store_flag(u32* flag, u32 value) { *static_cast<volatile u32*>(flag) = value; }

__device__ inline u64 clock_now() { return static_cast<u64>(clock64()); }

}  // namespace amk
