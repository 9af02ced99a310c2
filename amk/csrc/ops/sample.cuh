// sample: the next token of all workers' best, what the host sees of it, and the embedding of the next step's rows.
#pragma once

#include "ops/gemv.cuh"

namespace amk {

template <class Config>
struct SampleOp {
  static constexpr int kWarps = Config::kConsumerWarps;
  static constexpr int kThreads = kWarps * kWarp;

  Block<Config>& block;
  const SampleTask& task;

  // False when the launch is over.
  __device__ __forceinline__ bool run() {
    // What the host wrote is there before the waits are over. Its flag takes a while to come.
    const u32 following = block.pos + block.tokens;
    const u32 given = *reinterpret_cast<const u32*>(task.prompt_length);
    const int* prompt = reinterpret_cast<const int*>(task.prompt);
    const int next = following < given ? prompt[following] : 0;
    Status* status = reinterpret_cast<Status*>(block.params.status);
    const bool tells = block.warp == kWarps - 1;
    const u32 cancel = tells ? load_host(&status->cancel) : 0;
    if (!block.ready(reinterpret_cast<const TaskHead&>(task))) return false;
    int chosen;
    if (!best(chosen)) return false;
    const bool sampled = following >= given;
    if (!sampled) chosen = next;
    for (u32 row = 0; row < block.tokens; ++row) {
      const u32 position = following + row;
      embed(row, position < given ? prompt[position] : chosen);
    }
    if (tells) {
      const bool over = cancel != 0 || (sampled && ends_text(chosen));
      if (block.lane == 0) *reinterpret_cast<u32*>(task.stop) = over ? 1 : 0;
    }
    if (!block.meet()) return false;
    // Nothing waits for the host to see it.
    if (tells && block.lane == 0) {
      store_host(&status->steps, block.step + 1);
      store_host(reinterpret_cast<u32*>(task.token) + following, static_cast<u32>(chosen));
    }
    return true;
  }

 private:
  // The row of the best of all slots, for every thread. They meet.
  __device__ __forceinline__ bool best(int& row) const {
    const float* values = reinterpret_cast<const float*>(task.best_value);
    const int* indices = reinterpret_cast<const int*>(task.best_index);
    float top = minus_infinity();
    row = -1;
    for (u32 slot = block.thread; slot < task.slots; slot += kThreads) {
      keep_best(top, row, values[slot], indices[slot]);
    }
    return best_of_block(block, top, row);
  }

  __device__ __forceinline__ bool ends_text(int token) const {
    const int* eos = reinterpret_cast<const int*>(task.eos);
    bool other = true;
    for (u32 slot = block.lane; slot < task.eos_slots; slot += kWarp) other &= eos[slot] != token;
    return !all_lanes(other);
  }

  // A row of the table, tiled as a head's weights are or plain.
  __device__ __forceinline__ void embed(u32 row, int token) {
    const u32 epoch = block.epoch(task.hidden_epoch, task.hidden_epochs);
    const auto hidden = Values<Config::kTaggedHidden>(task.next_hidden, epoch).from(row * task.hidden);
    const u64 id = static_cast<u64>(token);
    for (u32 column = block.thread; column < task.hidden; column += kThreads) {
      const float value = task.scales != 0 ? integer(id, column) : from_bf16(element<kTileColumns>(id, column));
      hidden.put(column, value * task.scale);
    }
  }

  template <u32 kBlockColumns, class T = u16>
  __device__ __forceinline__ T element(u64 id, u32 column) const {
    const u64 blocks = divide_up(task.hidden, kBlockColumns);
    const u64 tile = (id / kTileRows * blocks + column / kBlockColumns) * (kTileRows * kBlockColumns);
    const u64 at =
        task.tiled ? tile + id % kTileRows * kBlockColumns + column % kBlockColumns : id * task.hidden + column;
    return reinterpret_cast<const T*>(task.table)[at];
  }

  // Of a table of integers, with a scale for each `group` columns of a row.
  __device__ __forceinline__ float integer(u64 id, u32 column) const {
    const float* scales = reinterpret_cast<const float*>(task.scales) + id * divide_up(task.hidden, task.group);
    return scales[column / task.group] * static_cast<float>(element<kIntegerColumns, signed char>(id, column));
  }
};

}  // namespace amk
