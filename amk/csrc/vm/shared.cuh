// A block's shared memory.
#pragma once

#include "abi.cuh"

namespace amk {

// Descriptors that the producer may have read ahead of the consumers.
constexpr int kSlots = 8;
static_assert(kSlots % 2 == 0, "two tasks that follow each other would share a half of the sums");

// Elements of a block of weights: 8 rows by 32 columns of bf16, or by 64 of integers; 512 bytes (amk/ir/layout.py).
constexpr int kTileRows = 8;
constexpr int kTileColumns = 32;
constexpr int kIntegerColumns = 2 * kTileColumns;
constexpr int kBlockBytes = kTileRows * kTileColumns * 2;

// Elements put behind each staged row, so that rows do not fall on the same banks.
constexpr int kRowPad = 4;

// No task's number.
constexpr u32 kNoTask = 0xffffffff;

// Why a block stops waiting.
struct Ending {
  u32 leaving;   // its consumers have left the launch: what the producer still waits for may never come
  u32 aborting;  // a wait ran out, here or elsewhere
};

template <class Config>
struct Shared {
  // Sums of four tiles of weight rows for each row of the longest step, as the validator counts them, in two halves for
  // a step of one row: of an output one of each warp, in quads.
  static constexpr int kWarpsUp = (Config::kConsumerWarps + 3) / 4 * 4;
  static constexpr int kSumsCounted = 4 * Config::kConsumerWarps * Config::kTokensMax * kTileRows;
  static constexpr int kSumsLeast = 2 * kTileRows * kWarpsUp;
  static constexpr int kSums = kSumsCounted < kSumsLeast ? kSumsLeast : kSumsCounted;
  static constexpr int kAttentionBytes = Config::kWorkBytes + kSums * static_cast<int>(sizeof(float));
  static_assert(Config::kWorkBytes % 128 == 0, "there is a gap between work and sums");

  alignas(128) char ring[Config::kStages][Config::kStageBytes];
  alignas(128) char slots[kSlots][kTaskBytes];
  // Activations of the running task: staged rows of a GEMV, or q, scores and new rows of attention, which go on into
  // the sums: attention has none.
  alignas(128) char work[Config::kWorkBytes];
  alignas(16) float sums[kSums];
  alignas(16) float squares[Config::kTokensMax > 2 ? Config::kTokensMax : 2][kWarpsUp];
  float units[Config::kTokensMax][Config::kConsumerWarps];  // of a warp's staged digits
  float scale[Config::kTokensMax];
  float shift[Config::kTokensMax];
  float warp_value[Config::kConsumerWarps];
  int warp_index[Config::kConsumerWarps];
  u64 ring_full[Config::kStages];
  u64 ring_empty[Config::kStages];
  u64 slot_full[kSlots];
  u64 slot_empty[kSlots];
  Ending ending;
  u32 begun;        // number of the task that the consumers are in
  Times times;      // of the running task, where they are stamped
  u32 queue_begin;  // of this worker's tasks
  u32 queue_length;
};

}  // namespace amk
