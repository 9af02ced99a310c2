// The matrix instructions: 16 activation rows by 8 weight rows, by 16 columns of bf16 or 32 of integers.
#pragma once

#include "prim/thread.cuh"

namespace amk {

// PTX ISA: mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32.
// a: rows g and g+8 (g = lane/4), columns 2t..2t+1 and 2t+8..2t+9 (t = lane%4), in the order (g, low), (g+8, low),
// (g, high), (g+8, high). b: row g of the weight, the same columns. sum: (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1).
__device__ inline void mma_bf16(float (&sum)[4], const uint4& a, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

// PTX ISA: mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32. The same with four columns a word: columns 4t..4t+3 and
// 4t+16..4t+19.
__device__ inline void mma_s8(int (&sum)[4], const uint4& a, u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

}  // namespace amk
