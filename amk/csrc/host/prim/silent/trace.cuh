// Whose accesses a thread makes.
#pragma once

#include "abi.cuh"

namespace amk {

inline void note_task(u32 number) { host::note_task(number); }

inline void note_worker(const Params&, u32) {}
inline void note_taken(Times&) {}
inline void note_moment(u64&) {}
inline void note_waited(Times&) {}
inline void note_times(const Params&, u32, u32, const Times&) {}

}  // namespace amk
