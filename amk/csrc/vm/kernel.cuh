// The kernel: one block a worker, one producer warp and the consumer warps of each, each running its queue of tasks.
#pragma once

#include "ops/add_norm.cuh"
#include "ops/attention.cuh"
#include "ops/gemv.cuh"
#include "ops/sample.cuh"
#include "trace.cuh"
#include "vm/producer.cuh"

namespace amk {

// The last step's sampler may have ended the launch, for every worker alike.
template <class Config>
__device__ __forceinline__ bool begin(Block<Config>& block, const BeginTask& task) {
  if (!block.ready(reinterpret_cast<const TaskHead&>(task))) return false;
  const bool going = *reinterpret_cast<const volatile u32*>(task.stop) == 0;
  return block.meet() && going;
}

// One task, from its waits to its last store, which lies before thread 0's return. False when the launch is over, for
// all threads alike.
//
// What every task keeps of the validator's obligations. It stores nothing before a meeting that lies behind its last
// read, and behind all that this worker did before (V1, V2; of what it does not read it may store sooner:
// amk/codegen/supported.py). What it reads is behind a meeting with the thread that waited, or carries its tag (V3).
// Thread 0 publishes a task before it comes to the next meeting, so no warp is further ahead than one task (V4, drift
// 1).
template <bool kOneRow, class Config>
__device__ __forceinline__ bool run_task(Block<Config>& block, const TaskHead& head) {
  switch (head.opcode) {
    case kOpcodeGemv:
      return run_gemv<kOneRow>(block, reinterpret_cast<const GemvTask&>(head));
    case kOpcodeAttention:
      return attend<kOneRow>(block, reinterpret_cast<const AttentionTask&>(head));
    case kOpcodeAddNorm:
      return AddNormOp<Config>{block, reinterpret_cast<const AddNormTask&>(head)}.run();
    case kOpcodeSample:
      return SampleOp<Config>{block, reinterpret_cast<const SampleTask&>(head)}.run();
    default:
      return begin(block, reinterpret_cast<const BeginTask&>(head));
  }
}

template <bool kOneRow, class Config>
__device__ __forceinline__ void consume(Shared<Config>& shared, const Params& params) {
  Block<Config> block(shared, params, kOneRow ? 1 : params.tokens);
  for (bool going = true; going && block.step < params.steps; ++block.step) {
    for (u32 place = 0; place < shared.queue_length; ++place) {
      block.identify();
      const u32 done = block.step * shared.queue_length + place, slot = done % kSlots;
      block.good = wait_phase(params, &shared.ending, &shared.slot_full[slot], done / kSlots & 1, block.step);
      // A descriptor that did not come to one warp may have come to others: they meet, and leave together.
      going = block.good || block.meet();
      if (!going) break;
      const TaskHead& head = *reinterpret_cast<const TaskHead*>(shared.slots[slot]);
      note_task(head.number);
      note_taken(shared.times);
      going = run_task<kOneRow>(block, head);
      if (!going) break;
      warp_sync();
      if (block.thread == 0) {
        u32* counters = reinterpret_cast<u32*>(params.counters);
        for (u32 i = 0; i < head.signal_count; ++i) add_release(counters + head.signals[i] * kCounterStride, 1);
      }
      note_moment(shared.times.done);
      note_times(params, block.step, head.number, shared.times);
      warp_sync();
      if (block.lane == 0) mbarrier_arrive(&shared.slot_empty[block.slot(head)]);
    }
  }
  if (threadIdx.x == 0) note_worker(params, 1);
  store_flag(&shared.ending.leaving, 1);
}

// A kernel for steps of one row, and one for those of several: what these take of registers is none of the other's.
template <bool kOneRow, class Config>
__device__ __forceinline__ void run_worker(const Params& params) {
  alignas(128) extern __shared__ char memory[];
  // In steps of several rows it would hold a register.
  Shared<Config>& shared = *reinterpret_cast<Shared<Config>*>(kOneRow ? shared_anew(memory) : memory);
  if (threadIdx.x == 0) {
    note_worker(params, 0);
    for (int i = 0; i < Config::kStages; ++i) {
      mbarrier_init(&shared.ring_full[i], kCopyArrivals);
      mbarrier_init(&shared.ring_empty[i], Config::kConsumerWarps);
    }
    for (int i = 0; i < kSlots; ++i) {
      mbarrier_init(&shared.slot_full[i], kCopyArrivals);
      mbarrier_init(&shared.slot_empty[i], Config::kConsumerWarps);
    }
    shared.ending = Ending{0, 0};
    shared.begun = kNoTask;
    const u32* begin = reinterpret_cast<const u32*>(params.queue_begin) + blockIdx.x;
    shared.queue_length = begin[1] - begin[0];
    shared.queue_begin = begin[0];
    copy_setup();
  }
  __syncthreads();
  if (warp_index() == Config::kConsumerWarps) {
    const char* queue = reinterpret_cast<const char*>(params.tasks) + static_cast<u64>(shared.queue_begin) * kTaskBytes;
    Producer<Config>(shared, params, lane_index()).run(queue, shared.queue_length);
  } else {
    consume<kOneRow>(shared, params);
  }
}

}  // namespace amk
