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

// A value and the epoch of its write, in one access. PTX ISA: ld.relaxed.gpu.b64, st.relaxed.gpu.b64; of a vector, each
// element is an access.
struct alignas(8) Word {
  float value;
  u32 epoch;
};
struct TwoWords {
  Word first;
  Word second;
};

__device__ inline Word word_of(u64 bits) {
  return {__uint_as_float(static_cast<u32>(bits)), static_cast<u32>(bits >> 32)};
}

__device__ inline Word load_word(const Word* address) {
  u64 bits;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(bits) : "l"(address) : "memory");
  return word_of(bits);
}

__device__ inline TwoWords load_words(const Word* address) {
  u64 first, second;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];" : "=l"(first), "=l"(second) : "l"(address) : "memory");
  return {word_of(first), word_of(second)};
}

__device__ inline void store_word(Word* address, Word word) {
  const u64 bits = static_cast<u64>(word.epoch) << 32 | __float_as_uint(word.value);
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(address), "l"(bits) : "memory");
}

// Between two looks at words that have not come.
__device__ inline void look_again() {}

// Flags that warps of one block poll; volatile, so that a spin sees them change.
__device__ inline u32 load_flag(const u32* flag) { return *static_cast<const volatile u32*>(flag); }
__device__ inline void store_flag(u32* flag, u32 value) { *static_cast<volatile u32*>(flag) = value; }

__device__ inline u64 clock_now() { return static_cast<u64>(clock64()); }

}  // namespace amk
