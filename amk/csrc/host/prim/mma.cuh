// The matrix instructions: 16 activation rows by 8 weight rows, by 16 columns of bf16 or 32 of integers.
#pragma once

#include "prim/thread.cuh"

namespace amk {

inline void mma_bf16(float (&sum)[4], const uint4& a, u32 b0, u32 b1) {
  host::multiply_bf16(sum, {a.x, a.y, a.z, a.w}, {b0, b1});
}

inline void mma_s8(int (&sum)[4], const uint4& a, u32 b0, u32 b1) {
  host::multiply_s8(sum, {a.x, a.y, a.z, a.w}, {b0, b1});
}

}  // namespace amk
