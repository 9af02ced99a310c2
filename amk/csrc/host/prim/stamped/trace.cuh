// When tasks run, in nanoseconds; all workers have one clock.
#pragma once

#include "abi.cuh"

namespace amk {

inline void note_task(u32 number) { host::note_task(number); }

inline void note_worker(const Params& params, u32 at) {
  if (params.clocks == 0) return;
  reinterpret_cast<Clocks*>(params.clocks)[blockIdx.x * 2 + at] = Clocks{host::clock_now(), host::clock_now()};
}

// What follows is of the block's first thread.
inline void note_moment(u64& to) {
  if (threadIdx.x == 0) to = host::clock_now();
}

inline void note_taken(Times& times) {
  note_moment(times.taken);
  if (threadIdx.x == 0) times.starved = 0;
}

// The time since `waiting` was spent without data of the stream.
inline void note_waited(Times& times) {
  if (threadIdx.x == 0) times.starved += host::clock_now() - times.waiting;
}

inline void note_times(const Params& params, u32 step, u32 number, const Times& times) {
  if (threadIdx.x != 0 || params.times == 0) return;
  reinterpret_cast<Times*>(params.times)[static_cast<u64>(step) * params.tasks_total + number] = times;
}

}  // namespace amk
