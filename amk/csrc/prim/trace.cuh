// Whose accesses a thread makes: for builds that log them.
#pragma once

#include "prim/thread.cuh"

namespace amk {

// From here on, this thread works for task `number` of the queues.
__device__ inline void note_task(u32) {}

}  // namespace amk
