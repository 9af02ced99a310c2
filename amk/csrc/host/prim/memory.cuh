// Loads, stores and fences whose order matters between blocks or with the host: C++ atomics.
#pragma once

#include "prim/thread.cuh"

namespace amk {

inline u32 load_acquire(const u32* address) {
  host::pause();
  return __atomic_load_n(address, __ATOMIC_ACQUIRE);
}

inline u32 load_relaxed(const u32* address) { return __atomic_load_n(address, __ATOMIC_RELAXED); }
inline void add_release(u32* address, u32 value) { __atomic_fetch_add(address, value, __ATOMIC_RELEASE); }
inline u32 load_host(const u32* address) { return __atomic_load_n(address, __ATOMIC_RELAXED); }
inline void store_host(u32* address, u32 value) { __atomic_store_n(address, value, __ATOMIC_RELEASE); }
inline void store_relaxed(u32* address, u32 value) { __atomic_store_n(address, value, __ATOMIC_RELAXED); }
inline u32 load_flag(const u32* flag) { return __atomic_load_n(flag, __ATOMIC_RELAXED); }
inline void store_flag(u32* flag, u32 value) { __atomic_store_n(flag, value, __ATOMIC_RELAXED); }

inline u64 clock_now() { return host::clock_now(); }

}  // namespace amk
