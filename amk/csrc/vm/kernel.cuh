// The kernel: one block a worker, one producer warp and the consumer warps of each, each running its queue of tasks.
#pragma once

#include "ops/add_norm.cuh"
#include "ops/attention.cuh"
#include "ops/gemv.cuh"
#include "ops/sample.cuh"
#include "prim/trace.cuh"
#include "vm/producer.cuh"

namespace amk {

template <class Config>
__device__ bool run_task(Block<Config>& block, const TaskHead& head) {
  switch (head.opcode) {
    case kOpcodeGemv:
      return GemvOp<Config>(block, reinterpret_cast<const GemvTask&>(head)).run();
    case kOpcodeAttention:
      return attend<Config>(block, reinterpret_cast<const AttentionTask&>(head));
    case kOpcodeAddNorm:
      return AddNormOp<Config>{block, reinterpret_cast<const AddNormTask&>(head)}.run();
    case kOpcodeSample:
      return SampleOp<Config>{block, reinterpret_cast<const SampleTask&>(head)}.run();
    default:
      // Begin: the last step's sampler may have ended the launch, for every worker alike.
      return *reinterpret_cast<const volatile u32*>(reinterpret_cast<const BeginTask&>(head).stop) == 0;
  }
}

// The waits of a task, made by one thread and shared by the meeting that follows (V3, V5).
template <class Config>
__device__ bool wait_for(Block<Config>& block, const TaskHead& head) {
  if (head.wait_count == 0) return block.meet();  // V1: behind the signals of the task before
  if (block.thread == 0) {
    const u64 start = clock_now();
    for (u32 i = 0; i < head.wait_count; ++i) {
      const u32 threshold = head.wait_threshold[i] + (block.params.steps_done + block.step) * head.wait_each[i];
      const Waiting what{head.number, block.step, head.wait_counter[i], threshold};
      if (!wait_counter(block.params, &block.shared.ending, kConsumer, what, start)) break;
    }
  }
  return block.meet();
}

template <class Config>
__device__ void consume(Shared<Config>& shared, const Params& params, u32 length) {
  const int thread = static_cast<int>(threadIdx.x);
  Block<Config> block{shared, params, 0, params.pos, params.tokens, thread, thread / kWarp, thread % kWarp, 0, {}};
  u32 done = 0;
  for (bool going = true; going && block.step < params.steps; ++block.step, block.pos += params.tokens) {
    for (u32 place = 0; place < length && going; ++place, ++done) {
      const u32 slot = done % kSlots;
      going = wait_phase(params, &shared.ending, &shared.slot_full[slot], done / kSlots & 1, block.step);
      if (!going) break;
      const TaskHead& head = *reinterpret_cast<const TaskHead*>(shared.slots[slot]);
      note_task(head.number);
      // V1, V2, V4 (no drift): all warps meet before anything of a task is signalled and before the next one begins.
      // What a task stores itself, no other thread of it reads (amk/codegen/supported.py).
      going = wait_for(block, head) && run_task(block, head) && block.meet();
      if (!going) break;
      if (thread == 0) {
        u32* counters = reinterpret_cast<u32*>(params.counters);
        for (u32 i = 0; i < head.signal_count; ++i) add_release(counters + head.signals[i] * kCounterStride, 1);
      }
      warp_sync();
      if (block.lane == 0) mbarrier_arrive(&shared.slot_empty[slot]);
    }
  }
  store_flag(&shared.ending.leaving, 1);
}

template <class Config>
__device__ void run_worker(const Params& params) {
  extern __shared__ char memory[];
  // Dynamic shared memory is aligned to 16 bytes only as far as the language goes.
  const u64 start = reinterpret_cast<u64>(memory);
  Shared<Config>& shared = *reinterpret_cast<Shared<Config>*>(memory + ((start + 127) / 128 * 128 - start));
  if (threadIdx.x == 0) {
    for (int i = 0; i < Config::kStages; ++i) {
      mbarrier_init(&shared.ring_full[i], kCopyArrivals);
      mbarrier_init(&shared.ring_empty[i], Config::kConsumerWarps);
    }
    for (int i = 0; i < kSlots; ++i) {
      mbarrier_init(&shared.slot_full[i], kCopyArrivals);
      mbarrier_init(&shared.slot_empty[i], Config::kConsumerWarps);
    }
    mbarrier_init(&shared.meeting, Config::kConsumerWarps);
    shared.ending = Ending{0, 0};
    copy_setup();
  }
  __syncthreads();
  const u32* begin = reinterpret_cast<const u32*>(params.queue_begin);
  const u32 length = begin[blockIdx.x + 1] - begin[blockIdx.x];
  const char* queue = reinterpret_cast<const char*>(params.tasks) + static_cast<u64>(begin[blockIdx.x]) * kTaskBytes;
  if (warp_index() == Config::kConsumerWarps) {
    Producer<Config>(shared, params, lane_index()).run(queue, length);
  } else {
    consume(shared, params, length);
  }
}

}  // namespace amk
