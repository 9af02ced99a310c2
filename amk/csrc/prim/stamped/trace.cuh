// When tasks run: stamped into memory that the host reads afterwards (amk/measure/profile.py).
#pragma once

#include "abi.cuh"

namespace amk {

__device__ inline void note_task(u32) {}

// PTX ISA: %globaltimer. The clock that all workers share, in nanoseconds; it ticks about once a microsecond.
__device__ inline u64 shared_clock() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// The worker's clock beside the shared one as that ticks, at the launch's begin (0) and end (1).
__device__ inline void note_worker(const Params& params, u32 at) {
  if (params.clocks == 0) return;
  const u64 last = shared_clock();
  u64 shared = shared_clock();
  while (shared == last) shared = shared_clock();
  Clocks* to = reinterpret_cast<Clocks*>(params.clocks) + blockIdx.x * 2 + at;
  to->shared = shared;
  to->own = static_cast<u64>(clock64());
}

// What follows is of the block's first thread.
__device__ inline void note_moment(u64& to) {
  if (threadIdx.x == 0) to = static_cast<u64>(clock64());
}

__device__ inline void note_taken(Times& times) {
  note_moment(times.taken);
  if (threadIdx.x == 0) times.starved = 0;
}

// The time since `waiting` was spent without data of the stream.
__device__ inline void note_waited(Times& times) {
  if (threadIdx.x == 0) times.starved += static_cast<u64>(clock64()) - times.waiting;
}

__device__ inline void note_times(const Params& params, u32 step, u32 number, const Times& times) {
  if (threadIdx.x != 0 || params.times == 0) return;
  reinterpret_cast<Times*>(params.times)[static_cast<u64>(step) * params.tasks_total + number] = times;
}

}  // namespace amk
