// The matrix instruction, 16 activation rows by 8 weight rows by 16 columns.
#pragma once

#include "prim/thread.cuh"

namespace amk {

inline void mma_bf16(float (&sum)[4], const uint4& a, u32 b0, u32 b1) {
  host::multiply_bf16(sum, {a.x, a.y, a.z, a.w}, {b0, b1});
}

}  // namespace amk
