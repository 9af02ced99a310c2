// Whose accesses a thread makes.
#pragma once

#include "prim/thread.cuh"

namespace amk {

inline void note_task(u32 number) { host::note_task(number); }

}  // namespace amk
