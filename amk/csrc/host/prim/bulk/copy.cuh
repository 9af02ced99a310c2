// Asynchronous copies by the bulk copy engine: one lane issues, the engine counts bytes.
#pragma once

#include "prim/mbarrier.cuh"

namespace amk {

constexpr u32 kCopyArrivals = 1;

inline void copy_setup() {}
inline void copy_acquired() { host::fence_copies(); }

inline void copy_async(void* to, const void* from, u32 bytes, u64* barrier, int lane) {
  if (lane != 0) return;
  host::barrier_expect(barrier, bytes);
  host::copy_bulk(to, from, bytes, barrier);
}

}  // namespace amk
