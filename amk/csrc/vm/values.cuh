// Activations in global memory: rows of plain floats, or of words that each carry the epoch of their write.
//
// A plain row is read behind a counter that says that it is written. A tagged word says so itself: it is read again
// until it carries the epoch that is expected, and speaks for nothing but itself (V3 of the validator).
#pragma once

#include "prim/memory.cuh"
#include "prim/number.cuh"

namespace amk {

template <bool kTagged>
struct Values;

template <>
struct Values<false> {
  u64 address;

  __device__ __forceinline__ Values(u64 address, u32) : address(address) {}

  __device__ __forceinline__ Values from(u64 element) const { return {address + element * 4, 0}; }
  __device__ __forceinline__ float get(u32 at, u32&) const { return reinterpret_cast<const float*>(address)[at]; }
  __device__ __forceinline__ Word look(u32 at) const { return {reinterpret_cast<const float*>(address)[at], 0}; }
  __device__ __forceinline__ float2 get_two(u32 at, u32&) const {
    return *reinterpret_cast<const float2*>(address + static_cast<u64>(at) * 4);
  }
  __device__ __forceinline__ float4 get_four(u32 at, u32&) const {
    return load_four(reinterpret_cast<const float*>(address) + at);
  }
  __device__ __forceinline__ void put(u32 at, float value) const { reinterpret_cast<float*>(address)[at] = value; }
};

// What is got has come if nothing was added to `missing`. Neighbours are aligned as one access of them would be.
template <>
struct Values<true> {
  u64 address;
  u32 epoch;

  __device__ __forceinline__ Values(u64 address, u32 epoch) : address(address), epoch(epoch) {}

  __device__ __forceinline__ Values from(u64 element) const { return {address + element * sizeof(Word), epoch}; }
  __device__ __forceinline__ float get(u32 at, u32& missing) const {
    const Word word = look(at);
    missing |= word.epoch ^ epoch;
    return word.value;
  }
  // What is there, and whether that is what was expected: to be asked later, for it waits for the word.
  __device__ __forceinline__ Word look(u32 at) const { return load_word(place(at)); }
  __device__ __forceinline__ bool came(const Word& word) const { return word.epoch == epoch; }
  __device__ __forceinline__ float2 get_two(u32 at, u32& missing) const {
    const TwoWords words = load_words(place(at));
    missing |= (words.first.epoch ^ epoch) | (words.second.epoch ^ epoch);
    return {words.first.value, words.second.value};
  }
  __device__ __forceinline__ float4 get_four(u32 at, u32& missing) const {
    const float2 low = get_two(at, missing), high = get_two(at + 2, missing);
    return {low.x, low.y, high.x, high.y};
  }
  __device__ __forceinline__ void put(u32 at, float value) const { store_word(place(at), Word{value, epoch}); }

 private:
  __device__ __forceinline__ Word* place(u32 at) const { return reinterpret_cast<Word*>(address) + at; }
};

}  // namespace amk
