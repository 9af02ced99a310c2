// The largest value and its row; the lowest row among equals. NaN is the largest of all, as torch has it.
#pragma once

#include "prim/number.cuh"

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

// Of all lanes, for each of them.
__device__ __forceinline__ void best_of_warp(float& best, int& row) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) keep_best(best, row, shuffle_xor(best, mask), shuffle_xor(row, mask));
}

}  // namespace amk
