// When tasks run and whose accesses a thread makes: nobody asks.
#pragma once

#include "abi.cuh"

namespace amk {

// From here on, this thread works for task `number` of the queues.
__device__ inline void note_task(u32) {}

__device__ inline void note_worker(const Params&, u32) {}
__device__ inline void note_taken(Times&) {}
__device__ inline void note_moment(u64&) {}
__device__ inline void note_waited(Times&) {}
__device__ inline void note_times(const Params&, u32, u32, const Times&) {}

}  // namespace amk
