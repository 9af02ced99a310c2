// Barriers in shared memory that count arrivals, and bytes.
#pragma once

#include "prim/thread.cuh"

namespace amk {

inline void mbarrier_init(u64* barrier, u32 arrivals) { host::barrier_init(barrier, arrivals); }
inline void mbarrier_arrive(u64* barrier) { host::barrier_arrive(barrier); }
inline bool mbarrier_done(u64* barrier, u32 parity) { return host::barrier_done(barrier, parity); }

}  // namespace amk
