// sample: the next token of all workers' best, what the host sees of it, and the embedding of the next step's rows.
#pragma once

#include "ops/gemv.cuh"

namespace amk {

template <class Config>
struct SampleOp {
  static constexpr int kThreads = Config::kConsumerWarps * kWarp;

  Block<Config>& block;
  const SampleTask& task;

  // False when the launch is over.
  __device__ __forceinline__ bool run() {
    if (!block.ready(reinterpret_cast<const TaskHead&>(task))) return false;
    const u32 following = block.pos + block.tokens;
    const u32 given = *reinterpret_cast<const u32*>(task.prompt_length);
    const int* prompt = reinterpret_cast<const int*>(task.prompt);
    if (block.warp == 0) {
      const int sampled = best();
      if (block.lane == 0) block.shared.warp_index[0] = following < given ? prompt[following] : sampled;
    }
    if (!block.meet()) return false;
    const int chosen = block.shared.warp_index[0];
    for (u32 row = 0; row < block.tokens; ++row) {
      const u32 position = following + row;
      embed(row, position < given ? prompt[position] : chosen);
    }
    if (block.thread == 0) {
      *reinterpret_cast<u32*>(task.stop) = ends(chosen, following >= given) ? 1 : 0;
      // The token, then the count that publishes it: the host reads them in the other order.
      store_host(reinterpret_cast<u32*>(task.token) + following, static_cast<u32>(chosen));
      Status* status = reinterpret_cast<Status*>(block.params.status);
      store_host(&status->steps, block.step + 1);
    }
    return block.meet();
  }

 private:
  __device__ __forceinline__ int best() const {
    const float* values = reinterpret_cast<const float*>(task.best_value);
    const int* indices = reinterpret_cast<const int*>(task.best_index);
    float top = minus_infinity();
    int index = -1;
    for (u32 slot = block.lane; slot < task.slots; slot += kWarp) {
      keep_best(top, index, values[slot], indices[slot]);
    }
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      keep_best(top, index, shuffle_xor(top, mask), shuffle_xor(index, mask));
    }
    return index;
  }

  __device__ __forceinline__ bool ends(int token, bool sampled) const {
    bool found = load_host(&reinterpret_cast<Status*>(block.params.status)->cancel) != 0;
    const int* eos = reinterpret_cast<const int*>(task.eos);
    for (u32 slot = 0; slot < task.eos_slots; ++slot) found |= sampled && eos[slot] == token;
    return found;
  }

  // A row of the table, tiled as a head's weights are or plain.
  __device__ __forceinline__ void embed(u32 row, int token) {
    const u16* table = reinterpret_cast<const u16*>(task.table);
    float* hidden = reinterpret_cast<float*>(task.next_hidden) + row * task.hidden;
    const u64 blocks = divide_up(task.hidden, kTileColumns);
    const u64 id = static_cast<u64>(token);
    for (u32 column = block.thread; column < task.hidden; column += kThreads) {
      const u64 tile = (id / kTileRows * blocks + column / kTileColumns) * (kTileRows * kTileColumns);
      const u64 at =
          task.tiled ? tile + id % kTileRows * kTileColumns + column % kTileColumns : id * task.hidden + column;
      hidden[column] = from_bf16(table[at]) * task.scale;
    }
  }
};

}  // namespace amk
