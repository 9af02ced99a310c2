// What a task sees of its block: the step, the ring of streamed data, and the other consumer warps.
#pragma once

#include "vm/stream.cuh"
#include "vm/wait.cuh"

namespace amk {

template <class Config>
struct Block {
  Shared<Config>& shared;
  const Params& params;
  u32 step;
  u32 pos;     // position of the step's first row
  u32 tokens;  // rows of the step
  int thread;  // among the consumers
  int warp;
  int lane;
  u32 meetings;                   // of the consumer warps so far
  Cursor<Config::kStages> piece;  // the next to take

  static constexpr int kThreads = Config::kConsumerWarps * kWarp;

  // All consumer warps meet; what each wrote before is seen by all after. False when the launch is over.
  __device__ bool meet() {
    warp_sync();
    if (lane == 0) mbarrier_arrive(&shared.meeting);
    return wait_phase(params, &shared.ending, &shared.meeting, meetings++ & 1, step);
  }

  // The next piece of the stream, once it has landed; null when the launch is over. Every consumer warp takes every
  // piece.
  __device__ const char* take() {
    const bool landed = wait_phase(params, &shared.ending, &shared.ring_full[piece.stage], piece.parity, step);
    return landed ? shared.ring[piece.stage] : nullptr;
  }

  // Give the piece back; the producer may overwrite it once every warp has.
  __device__ void give_back() {
    warp_sync();
    if (lane == 0) mbarrier_arrive(&shared.ring_empty[piece.stage]);
    piece.advance();
  }

  // Sum over all consumer threads, in one fixed order, seen by all; `good` is false when the launch is over.
  __device__ float sum(float value, bool& good) {
    value = warp_sum(value);
    if (lane == 0) shared.warp_value[warp] = value;
    good = meet();
    if (!good) return 0.0f;
    float total = 0.0f;
    for (int other = 0; other < Config::kConsumerWarps; ++other) total += shared.warp_value[other];
    good = meet();  // before the next sum overwrites what another warp still reads
    return total;
  }
};

}  // namespace amk
