// The largest value and its row; the lowest row among equals. NaN is the largest of all, as torch has it.
#pragma once

#include "prim/number.cuh"
#include "vm/block.cuh"

namespace amk {

// Row -1 stands for none.
__device__ __forceinline__ void keep_best(float& best, int& row, float other, int other_row) {
  const bool nan = best != best, other_nan = other != other;
  const bool equal = nan == other_nan && (nan || best == other);
  const bool better = other_nan != nan ? other_nan : other > best;
  if (row < 0 || (other_row >= 0 && (better || (equal && other_row < row)))) {
    best = other;
    row = other_row;
  }
}

// Integers in the order of floats: numbers, of which the two zeros are one, then NaN.
__device__ __forceinline__ u32 order_of(float value) {
  const u32 bits = bits_of(value + 0.0f);
  return value != value ? 0xffffffff : bits >> 31 != 0 ? ~bits : bits | 0x80000000;
}

// Of all lanes, for each of them. A lane that has none has minus infinity.
__device__ __forceinline__ void best_of_warp(float& best, int& row) {
  const u32 order = order_of(best), top = greatest_of(order, kWarp);
  row = static_cast<int>(~greatest_of(order == top ? ~static_cast<u32>(row) : 0, kWarp));
  best = top == 0xffffffff ? float_of(top) : top >> 31 != 0 ? float_of(top & 0x7fffffff) : float_of(~top);
}

// Of all consumer threads, for each of them. They meet; false when the launch is over.
template <class Config>
__device__ __forceinline__ bool best_of_block(Block<Config>& block, float& best, int& row) {
  best_of_warp(best, row);
  if (block.lane == 0) {
    block.shared.warp_value[block.warp] = best;
    block.shared.warp_index[block.warp] = row;
  }
  if (!block.meet()) return false;
  const int other = least(block.lane, Config::kConsumerWarps - 1);
  best = block.shared.warp_value[other];
  row = block.shared.warp_index[other];
  best_of_warp(best, row);
  return true;
}

}  // namespace amk
