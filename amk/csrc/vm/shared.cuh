// A block's shared memory.
#pragma once

#include "abi.cuh"

namespace amk {

// Descriptors that the producer may have read ahead of the consumers.
constexpr int kSlots = 8;

// Tiles of 8 weight rows whose sums a warp keeps in registers at once.
constexpr int kTileGroup = 4;

// Elements of a tile of weights: 8 rows by 32 columns, 512 bytes of bf16 (amk/ir/layout.py).
constexpr int kTileRows = 8;
constexpr int kTileColumns = 32;
constexpr int kBlockBytes = kTileRows * kTileColumns * 2;

// Elements put behind each staged row, so that rows do not fall on the same banks.
constexpr int kRowPad = 8;

// Why a block stops waiting.
struct Ending {
  u32 leaving;   // its consumers have left the launch: what the producer still waits for may never come
  u32 aborting;  // a wait ran out, here or elsewhere
};

template <class Config>
struct Shared {
  static constexpr int kConsumers = Config::kConsumerWarps * kWarp;
  static constexpr int kSums = kTileGroup * Config::kConsumerWarps * Config::kTokensMax * kTileRows;

  alignas(128) char ring[Config::kStages][Config::kStageBytes];
  alignas(128) char slots[kSlots][kTaskBytes];
  // Activations of the running task: staged rows of a GEMV, or q, scores and new rows of attention.
  alignas(128) char work[Config::kWorkBytes];
  float sums[kSums];
  float squares[Config::kTokensMax][Config::kConsumerWarps];
  float scale[Config::kTokensMax];
  float shift[Config::kTokensMax];
  float warp_value[Config::kConsumerWarps];
  int warp_index[Config::kConsumerWarps];
  u64 ring_full[Config::kStages];
  u64 ring_empty[Config::kStages];
  u64 slot_full[kSlots];
  u64 slot_empty[kSlots];
  u64 meeting;
  Ending ending;
};

}  // namespace amk
