// fp32 as the tensor core takes it: pairs hi + lo of bf16.
#pragma once

#include "prim/number.cuh"

namespace amk {

// Of four neighbours, hi and lo of the first two, then of the others. As the left operand of a product that is hi of a
// row in one of its upper eight rows, and lo of it eight further down.
__device__ __forceinline__ uint4 pairs_of(float4 x) {
  const u32 high = to_bf16x2(x.x, x.y), higher = to_bf16x2(x.z, x.w);
  const u32 low = to_bf16x2(x.x - from_bf16(high & 0xffffu), x.y - from_bf16(high >> 16));
  const u32 lower = to_bf16x2(x.z - from_bf16(higher & 0xffffu), x.w - from_bf16(higher >> 16));
  return {high, low, higher, lower};
}

// A lane's eight neighbours of a row, for two products.
struct Fragment {
  uint4 first;
  uint4 second;
};

}  // namespace amk
