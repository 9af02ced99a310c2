// What the machine itself can do: how fast blocks read memory into a ring, and what a hop between them costs, with and
// without the other. One warp of a block streams, another hops.
#pragma once

#include "copy.cuh"
#include "prim/memory.cuh"
#include "vm/stream.cuh"

namespace amk {

template <class Config>
struct LimitsShared {
  alignas(128) char ring[Config::kStages][Config::kStageBytes];
  u64 landed[Config::kStages];
  u32 over;
};

// `pieces` pieces of this block's part of memory, or as many as there is time for until `over`, if that is asked for.
// Returns how many.
template <class Config>
__device__ inline u32 stream_pieces(LimitsShared<Config>& shared, const char* from, u32 part, u32 pieces, bool until) {
  // As the kernel does: more while nothing else goes on.
  constexpr u32 kInFlight = Config::kInFlightBytes / Config::kStageBytes;
  const u32 most = until ? kInFlight : least(2 * kInFlight, Config::kStages);
  const int lane = lane_index();
  Cursor<Config::kStages> next, oldest;
  u32 issued = 0, done = 0;
  const auto land = [&] {
    while (!mbarrier_done(&shared.landed[oldest.stage()], oldest.parity())) {
    }
    oldest.advance();
    ++done;
  };
  for (; until || issued < pieces; ++issued) {
    if (issued - done == most) land();
    if (until && all_lanes(load_flag(&shared.over) != 0)) break;
    copy_async(shared.ring[next.stage()], from + static_cast<u64>(issued % part) * Config::kStageBytes,
               Config::kStageBytes, &shared.landed[next.stage()], lane);
    next.advance();
  }
  while (done < issued) land();
  return issued;
}

// Each block adds to a counter and waits until all have. A wait that takes too long ends the launch.
template <class Config>
__device__ inline void hop(const Params& params) {
  u32* counter = reinterpret_cast<u32*>(params.counters);
  for (u32 i = 1; i <= params.steps; ++i) {
    add_release(counter, 1);
    const u64 start = clock_now();
    while (load_acquire(counter) < i * Config::kBlocks) {
      if (clock_now() - start < params.watchdog_clocks && !load_relaxed(reinterpret_cast<u32*>(params.abort))) continue;
      store_relaxed(reinterpret_cast<u32*>(params.abort), 1);
      return;
    }
  }
}

// Params: tasks is the memory, tasks_total the pieces of it that are a block's, tokens the pieces to read, steps the
// hops; with hops, a block reads while it hops, if tokens is not 0. times gets the pieces that each block has read.
template <class Config>
__device__ inline void measure(const Params& params) {
  alignas(128) extern __shared__ char memory[];
  LimitsShared<Config>& shared = *reinterpret_cast<LimitsShared<Config>*>(memory);
  if (threadIdx.x == 0) {
    for (int i = 0; i < Config::kStages; ++i) mbarrier_init(&shared.landed[i], kCopyArrivals);
    shared.over = 0;
    copy_setup();
  }
  __syncthreads();
  if (warp_index() == 0) {
    const u64 part = params.tasks_total;
    const char* from = reinterpret_cast<const char*>(params.tasks) + blockIdx.x * part * Config::kStageBytes;
    u32 read = 0;
    if (params.tokens != 0) read = stream_pieces(shared, from, params.tasks_total, params.tokens, params.steps != 0);
    if (lane_index() == 0) reinterpret_cast<u32*>(params.times)[blockIdx.x] = read;
  } else if (threadIdx.x == kWarp) {
    if (params.steps != 0) hop<Config>(params);
    store_flag(&shared.over, 1);
  }
}

}  // namespace amk
