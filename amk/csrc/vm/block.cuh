// What a task sees of its block: the step, the ring of streamed data, and the other consumer warps.
#pragma once

#include "trace.cuh"
#include "vm/stream.cuh"
#include "vm/wait.cuh"

namespace amk {

template <class Config>
struct Block {
  Shared<Config>& shared;
  const Params& params;
  u32 step = 0;
  u32 pos = 0;       // position of the step's first row
  const u32 tokens;  // rows of the step
  int thread = 0;    // among the consumers
  int warp = 0;
  int lane = 0;
  Cursor<Config::kStages> piece;  // the next to take
  bool good = true;               // all that this thread has waited for has come

  static constexpr int kWarps = Config::kConsumerWarps;
  static constexpr int kThreads = kWarps * kWarp;

  __device__ __forceinline__ Block(Shared<Config>& shared, const Params& params, u32 tokens)
      : shared(shared), params(params), tokens(tokens) {}

  // Before each task. What a task makes of these would else be made once for all tasks, and hold registers for ever.
  __device__ __forceinline__ void identify() {
    thread = thread_index_anew();
    warp = thread / kWarp;
    lane = thread % kWarp;
    step = anew(step);
    pos = params.pos + step * tokens;
  }

  // All consumer warps meet; what each wrote before is seen by all after. False, for all alike, once any of them has
  // waited in vain: then the launch is over, and nothing may be stored any more.
  __device__ __forceinline__ bool meet() {
    good = meet_all(kThreads, good);
    note_moment(shared.times.met);
    return good;
  }

  // The waits of a task, made by one thread and shared by the meeting that follows (V3, V5). Nothing that a launch
  // writes is read before. Thread 0 publishes tasks: behind a meeting with it lies the task before (V1, V4). Another
  // one waits, which may begin while the task before is finished and published.
  __device__ __forceinline__ bool ready(const TaskHead& head) {
    if (thread == kThreads - kWarp) {
      const u64 start = clock_now();
      for (u32 i = 0; i < head.wait_count && good; ++i) {
        const u32 threshold = head.wait_threshold[i] + (params.steps_done + step) * head.wait_each[i];
        const Waiting what{head.number, step, head.wait_counter[i], threshold};
        good = wait_counter(params, &shared.ending, kConsumer, what, start);
      }
    }
    meet();
    begun(head);
    return good;
  }

  // A task whose words say themselves when they are written need not wait, nor meet, before it reads them.
  template <bool kTagged>
  __device__ __forceinline__ bool open(const TaskHead& head) {
    return (kTagged && head.wait_count == 0) || ready(head);
  }

  // The half of the sums that a task of one row takes. Meanwhile those of the task before may still be read, from the
  // other one: it had the slot before.
  __device__ __forceinline__ u32 half(const TaskHead& head) const { return slot(head) % 2; }
  __device__ __forceinline__ u32 slot(const TaskHead& head) const {
    return (reinterpret_cast<const char*>(&head) - shared.slots[0]) / kTaskBytes;
  }

  // The epoch of the words of an operand in this step.
  __device__ __forceinline__ u32 epoch(int first, u32 each) const {
    return static_cast<u32>(first) + (params.steps_done + step) * each;
  }

  // Read what `ask(missing)` reads, until nothing is missing. Of plain data nothing ever is. `kTogether`: all lanes of
  // a warp read, and go on once none of them misses anything.
  template <bool kTagged, bool kTogether = false, class Ask>
  __device__ __forceinline__ void await(const TaskHead& head, u32 epoch, Ask ask) {
    const auto come = [&] {
      u32 missing = 0;
      ask(missing);
      return missing == 0;
    };
    if (!kTagged) {
      come();
      return;
    }
    good = all_of<kTogether>(good);
    if (good) good = wait_words<kTogether>(params, &shared.ending, Waiting{head.number, step, kInWords, epoch}, come);
  }

  // This thread has what the task waits for, of those that say so themselves.
  __device__ __forceinline__ void begun(const TaskHead& head) {
    if (thread == 0) store_flag(&shared.begun, head.number);
    note_moment(shared.times.ready);
  }

  // The next piece of the stream, once it has landed. Every consumer warp takes every piece.
  __device__ __forceinline__ const char* take() {
    note_moment(shared.times.waiting);
    // Without a branch: once a wait was in vain, the next one sees that it was.
    good &= wait_phase(params, &shared.ending, &shared.ring_full[piece.stage()], piece.parity(), step);
    note_waited(shared.times);
    return shared.ring[piece.stage()];
  }

  // Give the piece back; the producer may overwrite it once every warp has.
  __device__ __forceinline__ void give_back() {
    give_back(piece.stage());
    piece.advance();
  }
  __device__ __forceinline__ void give_back(u32 stage) {
    warp_sync();
    if (lane == 0) mbarrier_arrive(&shared.ring_empty[stage]);
  }

  // The next piece, to be given back by its stage when others have been taken.
  __device__ __forceinline__ u32 hold() {
    take();
    const u32 stage = piece.stage();
    piece.advance();
    return stage;
  }

  // Sum over all consumer threads, in one fixed order, seen by all. They meet.
  __device__ __forceinline__ float sum(float value) {
    value = warp_sum(value);
    if (lane == 0) shared.warp_value[warp] = value;
    meet();
    float total = 0.0f;
    for (int other = 0; other < kWarps; ++other) total += shared.warp_value[other];
    meet();  // before the next sum overwrites what another warp still reads
    return total;
  }
};

}  // namespace amk
