// The matrix instruction, 16 activation rows by 8 weight rows by 16 columns.
#pragma once

#include "prim/thread.cuh"

namespace amk {

inline void mma_bf16(float (&sum)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  host::multiply_bf16(sum, {a0, a1, a2, a3}, {b0, b1});
}

}  // namespace amk
