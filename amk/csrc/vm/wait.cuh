// Every wait of the kernel. None is unbounded, and none falls through: a wait that runs out ends the launch.
#pragma once

#include "copy.cuh"
#include "prim/memory.cuh"
#include "vm/shared.cuh"

namespace amk {

// Looks at a counter between two looks at the clock and at the grid's abort flag.
constexpr u32 kLook = 64;

// What a wait is for, in the words of the error that names it.
struct Waiting {
  u32 task;
  u32 step;
  u32 counter;
  u32 threshold;
};

// The two kinds of waiters of a worker, each with a report of its own.
constexpr u32 kConsumer = 0;
constexpr u32 kProducer = 1;

// End the launch at this wait, whether it ran out itself or another did: every block says what it was waiting for, and
// the host finds the one that the others stand behind.
__device__ __forceinline__ void give_up(const Params& params, Ending* ending, u32 waiter, const Waiting& what,
                                        u32 value) {
  Report* report = reinterpret_cast<Report*>(params.reports) + blockIdx.x * 2 + waiter;
  report->task = what.task;
  report->step = what.step;
  report->counter = what.counter;
  report->threshold = what.threshold;
  report->value = value;
  store_host(&report->waiting, 1);
  store_relaxed(reinterpret_cast<u32*>(params.abort), 1);
  store_flag(&ending->aborting, 1);
}

// Whether `value` is true of this lane, or of each of its warp.
template <bool kTogether>
__device__ __forceinline__ bool all_of(bool value) {
  return kTogether ? all_lanes(value) : value;
}

// V5 of the validator: acquire until (value - threshold) >= 0 in 32-bit arithmetic. False when the launch is over; the
// waits of one task have one budget, which runs from `start`.
__device__ __forceinline__ bool wait_counter(const Params& params, Ending* ending, u32 waiter, const Waiting& what,
                                             u64 start) {
  const u32* counter = reinterpret_cast<const u32*>(params.counters) + what.counter * kCounterStride;
  for (u32 spins = 1;; ++spins) {
    const u32 value = load_acquire(counter);
    if (static_cast<int>(value - what.threshold) >= 0) return true;
    if (spins % kLook != 0) continue;
    if (load_flag(&ending->leaving)) return false;
    const bool late = clock_now() - start > params.watchdog_clocks;
    if (late || load_flag(&ending->aborting) || load_relaxed(reinterpret_cast<const u32*>(params.abort))) {
      give_up(params, ending, waiter, what, value);
      return false;
    }
  }
}

// Ask again and again until `ask` says that all that it asks for has come. False when the launch is over. `kTogether`:
// all lanes of a warp call it, and leave it as one; else what they shuffle next would find them in pieces.
template <bool kTogether, class Ask>
__device__ __forceinline__ bool wait_words(const Params& params, Ending* ending, const Waiting& what, Ask ask) {
  u64 start = 0;
  while (true) {
#pragma unroll 1
    for (u32 looks = 0; looks < kLook; ++looks) {
      if (all_of<kTogether>(ask())) return true;
      look_again();
    }
    if (start == 0) start = clock_now();
    const bool late = clock_now() - start > params.watchdog_clocks;
    const bool over = late || load_flag(&ending->aborting) || load_relaxed(reinterpret_cast<const u32*>(params.abort));
    if (!all_of<kTogether>(!over)) {
      give_up(params, ending, kConsumer, what, 0);
      return false;
    }
  }
}

// Wait for a phase of a barrier in shared memory. False when the launch is over.
__device__ __forceinline__ bool wait_phase(const Params& params, Ending* ending, u64* barrier, u32 parity, u32 step) {
  if (mbarrier_done(barrier, parity)) return true;
  const u64 start = clock_now();
  while (!mbarrier_done(barrier, parity)) {
    if (load_flag(&ending->aborting)) return false;
    // Twice the budget: a wait between blocks, which can be named and may be what this one stands behind, runs out
    // first.
    if (clock_now() - start > 2 * params.watchdog_clocks) {
      give_up(params, ending, kConsumer, Waiting{0, step, kInBlock, parity}, 0);
      return false;
    }
  }
  return true;
}

}  // namespace amk
