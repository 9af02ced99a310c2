// The host's chip: a block is an operating-system thread, its CUDA threads are fibers of it, and what its primitives
// wait for is decided here. prim/ stands on this, and nothing else does.
//
// Only one fiber of a block runs at a time, so its shared memory needs no atomics; what one thread may know of
// another's stores is said to the build's watch (watch.h), which is what finds a missing barrier.
#pragma once

#include <cstddef>
#include <cstdint>

namespace amk::host {

using u32 = uint32_t;
using u64 = unsigned long long;

struct Index {
  u32 x;
};

Index thread_index();
Index block_index();

// bar.sync 0 and bar.warp.sync: all arrive before any goes on, and what each wrote is seen by all.
void meet_block();
void meet_warp();

// barrier.red.and of the block's first `threads` threads.
bool meet_some(u32 threads, bool value);

// shfl.sync, vote.sync, mma.sync: a warp exchanges registers, which says nothing of memory.
u32 exchange_xor(u32 bits, int mask);
bool vote_all(bool value);
void multiply_bf16(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]);
void multiply_s8(int (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]);

// mbarrier: a word of shared memory that counts arrivals and bytes.
void barrier_init(u64* barrier, u32 arrivals);
void barrier_arrive(u64* barrier);
void barrier_expect(u64* barrier, u32 bytes);
bool barrier_done(u64* barrier, u32 parity);

// Copies that land later, in any order. Bulk: one thread's, counted in bytes. Lane: this lane's share, 16 bytes in
// every 512, and one arrival.
void copy_bulk(void* to, const void* from, u32 bytes, u64* barrier);
void copy_lane(void* to, const void* from, u32 bytes, u64* barrier, int lane);

// Order what this thread has acquired of global memory before the bulk copies that it issues next.
void fence_copies();

// A look at memory that another block or the host writes.
void pause();

// Nanoseconds.
u64 clock_now();

// From here on this thread's accesses are those of a task.
void note_task(u32 number);

}  // namespace amk::host
