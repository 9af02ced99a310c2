#include <time.h>

#include <cmath>
#include <cstring>

#include "host/block.h"
#include "host/runtime.h"

namespace amk::host {

Index thread_index() { return {block->current().index}; }
Index block_index() { return {block->index()}; }

void note_task(u32 number) { block->current().task = number; }

void meet_block() {
  block->meet(block->all(), block->threads(), true, [] {});
}

bool meet_some(u32 threads, bool value) {
  Block& here = *block;
  here.agree(value);
  here.meet(here.some(), threads, true, [&here] { here.agreed(); });
  return here.agreement();
}

void meet_warp() {
  block->meet(block->warp().memory, kLanes, true, [] {});
}

namespace {

// The warp's lanes each bring `mine`; the last one makes of them what each takes away.
template <class Operand, class Combine>
void exchange(Operand& mine, Combine combine) {
  Warp& warp = block->warp();
  warp.operands[block->current().index % kLanes] = &mine;
  block->meet(warp.registers, kLanes, false, [&] {
    Operand* all[kLanes];
    for (u32 lane = 0; lane < kLanes; ++lane) all[lane] = static_cast<Operand*>(warp.operands[lane]);
    combine(all);
  });
}

template <class Sum>
struct Product {
  Sum* sum;
  const u32* a;
  const u32* b;
};

float low(u32 word) { return __builtin_bit_cast(float, word << 16); }
float high(u32 word) { return __builtin_bit_cast(float, word & 0xffff0000u); }

// PTX ISA: matrix fragments for mma.m16n8k16 (bf16): g = lane / 4, t = lane % 4.
void multiply(Product<float>* (&all)[kLanes]) {
  float a[16][16], b[16][8], d[16][8] = {};
  for (u32 lane = 0; lane < kLanes; ++lane) {
    const u32 g = lane / 4, t = lane % 4 * 2;
    const Product<float>& of = *all[lane];
    for (u32 half = 0; half < 2; ++half) {
      for (u32 row = 0; row < 2; ++row) {
        const u32 word = of.a[half * 2 + row];
        a[g + row * 8][t + half * 8] = low(word);
        a[g + row * 8][t + half * 8 + 1] = high(word);
      }
      b[t + half * 8][g] = low(of.b[half]);
      b[t + half * 8 + 1][g] = high(of.b[half]);
    }
  }
  for (u32 row = 0; row < 16; ++row) {
    for (u32 k = 0; k < 16; ++k) {
      for (u32 n = 0; n < 8; ++n) d[row][n] += a[row][k] * b[k][n];
    }
  }
  for (u32 lane = 0; lane < kLanes; ++lane) {
    const u32 g = lane / 4, t = lane % 4 * 2;
    for (u32 i = 0; i < 4; ++i) all[lane]->sum[i] += d[g + i / 2 * 8][t + i % 2];
  }
}

int byte_of(u32 word, u32 byte) { return static_cast<signed char>(word >> (8 * byte)); }

// The same of mma.m16n8k32 (s8): rows as above, four columns a word.
void multiply(Product<int>* (&all)[kLanes]) {
  int a[16][32], b[32][8], d[16][8] = {};
  for (u32 lane = 0; lane < kLanes; ++lane) {
    const u32 g = lane / 4, t = lane % 4 * 4;
    const Product<int>& of = *all[lane];
    for (u32 half = 0; half < 2; ++half) {
      for (u32 byte = 0; byte < 4; ++byte) {
        const u32 k = t + half * 16 + byte;
        a[g][k] = byte_of(of.a[half * 2], byte);
        a[g + 8][k] = byte_of(of.a[half * 2 + 1], byte);
        b[k][g] = byte_of(of.b[half], byte);
      }
    }
  }
  for (u32 row = 0; row < 16; ++row) {
    for (u32 k = 0; k < 32; ++k) {
      for (u32 n = 0; n < 8; ++n) d[row][n] += a[row][k] * b[k][n];
    }
  }
  for (u32 lane = 0; lane < kLanes; ++lane) {
    const u32 g = lane / 4, t = lane % 4 * 2;
    for (u32 i = 0; i < 4; ++i) all[lane]->sum[i] += d[g + i / 2 * 8][t + i % 2];
  }
}

}  // namespace

u32 exchange_xor(u32 bits, int mask) {
  struct Lane {
    u32 in;
    u32 out;
  } mine{bits, 0};
  exchange(mine, [mask](Lane*(&all)[kLanes]) {
    for (u32 lane = 0; lane < kLanes; ++lane) all[lane]->out = all[lane ^ static_cast<u32>(mask)]->in;
  });
  return mine.out;
}

bool vote_all(bool value) {
  bool mine = value;
  exchange(mine, [](bool*(&all)[kLanes]) {
    bool every = true;
    for (bool* each : all) every = every && *each;
    for (bool* each : all) *each = every;
  });
  return mine;
}

void multiply_bf16(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  Product<float> mine{sum, a, b};
  exchange(mine, [](Product<float>*(&all)[kLanes]) { multiply(all); });
}

void multiply_s8(int (&sum)[4], const u32 (&a)[4], const u32 (&b)[2]) {
  Product<int> mine{sum, a, b};
  exchange(mine, [](Product<int>*(&all)[kLanes]) { multiply(all); });
}

void barrier_init(u64* barrier, u32 arrivals) { *barrier = static_cast<u64>(arrivals) << 16 | arrivals; }
void barrier_arrive(u64* barrier) { block->arrive(barrier); }
void barrier_expect(u64* barrier, u32 bytes) { block->expect(barrier, bytes); }
bool barrier_done(u64* barrier, u32 parity) { return block->done(barrier, parity); }

void copy_bulk(void* to, const void* from, u32 bytes, u64* barrier) {
  block->issue({static_cast<char*>(to), static_cast<const char*>(from), bytes, 0, bytes, bytes, barrier, true, 0, {}});
}

void copy_lane(void* to, const void* from, u32 bytes, u64* barrier, int lane) {
  block->issue({static_cast<char*>(to),
                static_cast<const char*>(from),
                bytes,
                16 * static_cast<u32>(lane),
                16,
                16 * kLanes,
                barrier,
                false,
                0,
                {}});
}

void fence_copies() { block->fence(); }
void pause() { block->pause(); }

u64 clock_now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<u64>(now.tv_sec) * 1'000'000'000ull + static_cast<u64>(now.tv_nsec);
}

}  // namespace amk::host
