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
struct alignas(8) Word {
  float value;
  u32 epoch;
};
struct TwoWords {
  Word first;
  Word second;
};

inline Word load_word(const Word* address) {
  const u64 bits = __atomic_load_n(reinterpret_cast<const u64*>(address), __ATOMIC_RELAXED);
  return {float_of(static_cast<u32>(bits)), static_cast<u32>(bits >> 32)};
}

inline TwoWords load_words(const Word* address) { return {load_word(address), load_word(address + 1)}; }

inline void store_word(Word* address, Word word) {
  const u64 bits = static_cast<u64>(word.epoch) << 32 | bits_of(word.value);
  __atomic_store_n(reinterpret_cast<u64*>(address), bits, __ATOMIC_RELAXED);
}

inline void look_again() { host::pause(); }

inline u32 load_flag(const u32* flag) { return __atomic_load_n(flag, __ATOMIC_RELAXED); }
inline void store_flag(u32* flag, u32 value) { __atomic_store_n(flag, value, __ATOMIC_RELAXED); }

inline u64 clock_now() { return host::clock_now(); }

}  // namespace amk
