// Asynchronous copies by the lanes of a warp: each lane copies 16-byte words and arrives when they have landed.
#pragma once

#include "prim/mbarrier.cuh"

namespace amk {

constexpr u32 kCopyArrivals = kWarp;

inline void copy_setup() {}
inline void copy_acquired() {}

inline void copy_async(void* to, const void* from, u32 bytes, u64* barrier, int lane) {
  host::copy_lane(to, from, bytes, barrier, lane);
}

}  // namespace amk
