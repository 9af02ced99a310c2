// The producer warp: reads tasks and streams ahead of the consumers, as far as the ring allows.
#pragma once

#include "copy.cuh"
#include "trace.cuh"
#include "vm/stream.cuh"
#include "vm/wait.cuh"

namespace amk {

template <class Config>
struct Producer {
  static constexpr u32 kInFlightBytes = Config::kInFlightBytes;

  Shared<Config>& shared;
  const Params& params;
  int lane;
  Cursor<Config::kStages> piece;   // the next to fill
  Cursor<Config::kStages> oldest;  // of those in flight
  u32 in_flight = 0;
  u32 in_flight_bytes = 0;
  u32 copied[Config::kStages] = {};  // bytes of the last copy into each stage
  bool wrapped = false;              // every stage has been filled once
  u32 step = 0;
  u32 number = 0;

  __device__ Producer(Shared<Config>& shared, const Params& params, int lane)
      : shared(shared), params(params), lane(lane) {}

  // Walk the queue `steps` times. Leaves early when the consumers have left, and only with no copy outstanding.
  __device__ void run(const char* queue, u32 length) {
    const u64 total = static_cast<u64>(length) * params.steps;
    u64 ahead = 0;
    for (; ahead < kSlots / 2 && ahead < total; ++ahead) fetch(queue, length, ahead);
    for (u64 tasks = 0; tasks < total; ++tasks) {
      if (ahead < total) {
        if (!next_slot(queue, length, ahead)) break;
        ++ahead;  // only what was fetched is waited for in the end
      }
      const u32 slot = tasks % kSlots;
      if (!landed(&shared.slot_full[slot], tasks / kSlots & 1)) break;
      step = static_cast<u32>(tasks / length);
      if (!stream(*reinterpret_cast<const TaskHead*>(shared.slots[slot]))) break;
    }
    drain(ahead);
  }

 private:
  __device__ bool over() const { return load_flag(&shared.ending.leaving) || load_flag(&shared.ending.aborting); }

  // Like wait_phase, but also ends when the consumers have left. All lanes come to one answer together: a copy is of
  // the whole warp, and none may be left behind in it.
  __device__ bool landed(u64* barrier, u32 parity) { return all_lanes(poll(barrier, parity)); }

  __device__ bool poll(u64* barrier, u32 parity) {
    while (!mbarrier_done(barrier, parity)) {
      if (over()) return false;
    }
    return true;
  }

  __device__ void fetch(const char* queue, u32 length, u64 index) {
    const u32 slot = index % kSlots;
    copy_async(shared.slots[slot], queue + index % length * kTaskBytes, kTaskBytes, &shared.slot_full[slot], lane);
  }

  __device__ bool next_slot(const char* queue, u32 length, u64 index) {
    if (index >= kSlots && !landed(&shared.slot_empty[index % kSlots], (index / kSlots - 1) & 1)) return false;
    warp_sync();  // every lane has read what lay in the slot before: a vote orders no memory
    fetch(queue, length, index);
    return true;
  }

  __device__ bool stream(const TaskHead& head) {
    number = head.number;
    note_task(number);
    if (head.opcode == kOpcodeGemv) return weights(reinterpret_cast<const GemvTask&>(head));
    if (head.opcode == kOpcodeAttention) return past(reinterpret_cast<const AttentionTask&>(head));
    return true;
  }

  __device__ bool weights(const GemvTask& task) {
    const bool head = task.prompt_length != 0;  // which is of the step's last row
    if (head) {
      const u32 following = params.pos + (step + 1) * params.tokens;
      if (following < *reinterpret_cast<const u32*>(task.prompt_length)) return true;
    }
    const u32 rows = head || params.tokens == 1 ? 1 : Config::kTokensMax;
    const GemvPieces<Config> cut(task.row_end - task.row_begin, task.k, rows,
                                 task.scales != 0 ? kIntegerColumns : kTileColumns);
    const char* base = reinterpret_cast<const char*>(task.weight);
    for (u32 group = 0; group < cut.tiles; group += cut.group_tiles) {
      const u32 end = group + cut.in_group(group);
      for (u32 chunk = 0; chunk < cut.blocks; chunk += cut.chunk_blocks) {
        const u32 width = cut.in_chunk(chunk);
        for (u32 tile = group; tile < end; tile += cut.piece_tiles) {
          const char* from = base + (static_cast<u64>(tile) * cut.blocks + chunk) * kBlockBytes;
          for (u32 at = 0; at < width; at += cut.piece_blocks) {
            const u32 count = least(cut.piece_blocks, width - at) * least(cut.piece_tiles, end - tile);
            if (!copy(from + at * kBlockBytes, count * kBlockBytes)) return false;
          }
        }
      }
    }
    return true;
  }

  __device__ bool past(const AttentionTask& task) {
    const u32 pos = params.pos + step * params.tokens;
    const PastPieces<Config> cut(task, pos);
    if (cut.low >= cut.high) return true;
    // Gated stream: rows written by earlier steps, seen once the last step is joined.
    const u32 threshold = task.gate_threshold + (params.steps_done + step) * task.gate_each;
    bool open = true;
    if (lane == 0) {
      open = wait_counter(params, &shared.ending, kProducer, Waiting{number, step, task.gate_counter, threshold},
                          clock_now());
    }
    if (!all_lanes(open)) return false;
    warp_sync();  // V3: what lane 0 acquired, every lane may read
    copy_acquired();
    for (u32 run = cut.low; run < cut.high; run += PastPieces<Config>::run_rows(params.tokens)) {
      const u32 end = least(run + PastPieces<Config>::run_rows(params.tokens), cut.high);
      if (!rows(task.k_cache, run, end) || !rows(task.v_cache, run, end)) return false;
    }
    return true;
  }

  __device__ bool rows(u64 cache, u32 begin, u32 end) {
    constexpr u32 kRowBytes = PastPieces<Config>::kRowBytes;
    for (u32 row = begin; row < end; row += PastPieces<Config>::kRows) {
      const u32 bytes = least(PastPieces<Config>::kRows, end - row) * kRowBytes;
      if (!copy(reinterpret_cast<const char*>(cache) + static_cast<u64>(row) * kRowBytes, bytes)) return false;
    }
    return true;
  }

  // One piece into the next stage: once it is empty, and once few enough bytes are in flight, since every other
  // access of the chip queues behind them. While the consumers are in the same task there are few others: then twice as
  // many may be.
  __device__ bool copy(const char* from, u32 bytes) {
    if (wrapped && !landed(&shared.ring_empty[piece.stage()], piece.parity() ^ 1)) return false;
    const bool in_task = all_lanes(load_flag(&shared.begun) == number);  // one answer: the flag may change meanwhile
    const u32 most = in_task ? 2 * kInFlightBytes : kInFlightBytes;
    while (in_flight == Config::kStages || in_flight_bytes >= most) {
      if (!land_oldest()) return false;
    }
    in_flight_bytes += bytes;
#pragma unroll
    for (u32 stage = 0; stage < Config::kStages; ++stage) {  // in registers, which have no addresses
      if (stage == piece.stage()) copied[stage] = bytes;
    }
    copy_async(shared.ring[piece.stage()], from, bytes, &shared.ring_full[piece.stage()], lane);
    ++in_flight;
    piece.advance();
    wrapped |= piece.stage() == 0;
    return true;
  }

  __device__ bool land_oldest() {
    if (!landed(&shared.ring_full[oldest.stage()], oldest.parity())) return false;
#pragma unroll
    for (u32 stage = 0; stage < Config::kStages; ++stage) {
      if (stage == oldest.stage()) in_flight_bytes -= copied[stage];
    }
    oldest.advance();
    --in_flight;
    return true;
  }

  // Wait for every copy issued: shared memory must outlive them.
  __device__ void drain(u64 fetched) {
    for (; in_flight > 0; --in_flight, oldest.advance()) {
      while (!mbarrier_done(&shared.ring_full[oldest.stage()], oldest.parity())) {
      }
    }
    for (u32 back = 1; back <= kSlots / 2 + 1 && back <= fetched; ++back) {
      const u64 index = fetched - back;
      while (!mbarrier_done(&shared.slot_full[index % kSlots], index / kSlots & 1)) {
      }
    }
  }
};

}  // namespace amk
