// One block: its fibers and the order in which they run, its engine of copies, and its share of chance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "abi.cuh"
#include "host/watch.h"

namespace amk::host {

constexpr u32 kLanes = 32;
constexpr u32 kNoTask = 0xffffffffu;

struct Fiber {
  void* stack_pointer = nullptr;
  u32 index = 0;
  u32 task = kNoTask;
  // Of an mbarrier that it was found to wait for.
  const u64* barrier = nullptr;
  u32 parity = 0;
  Context context;
};

// A meeting of a fixed set of fibers. Two addresses to release, in turn: one that is late in leaving must not learn of
// what others do before the next.
struct Meeting {
  u32 arrived = 0;
  u32 round = 0;
  std::vector<Fiber*> waiting;
  char said[2] = {};
};

struct Warp {
  Meeting memory;     // bar.warp.sync
  Meeting registers;  // exchanges
  void* operands[kLanes] = {};
};

// A copy under way: `width` bytes of every `stride` from `first` on.
struct Copy {
  char* to;
  const char* from;
  u32 bytes;
  u32 first;
  u32 width;
  u32 stride;
  u64* barrier;
  bool counted;  // in bytes; else it is one arrival
  u32 task;
  std::unique_ptr<char[]> early;  // read when it was issued, if chance has it so
};

// What copies to one barrier's data do: they read what was fenced before, and write once issued.
struct Engine {
  const u64* barrier;
  Context reader;
  Context writer;
  char issued = 0;
  char moved = 0;
};

// xorshift64*, from a seed; seed 0 leaves nothing to chance.
class Chance {
 public:
  Chance(u64 seed, u64 stream)
      : state_(seed == 0 ? 0 : seed * 0x9e3779b97f4a7c15ull ^ (stream + 1) * 0xd1b54a32d192ed03ull) {}
  bool any() const { return state_ != 0; }
  u32 below(u32 bound);
  bool one_in(u32 count) { return any() && below(count) == 0; }

 private:
  u64 state_;
};

struct Launch {
  Params params;
  u32 workers;
  u32 threads;
  u32 shared_bytes;
  u64 seed;
};

class Block {
 public:
  Block(const Launch& launch, u32 index);
  ~Block();

  // Run all fibers to their end.
  void run();

  u32 index() const { return index_; }
  Fiber& current() { return *current_; }

  // The running fiber waits until every one of `size` has come here; the last one runs `combine`.
  template <class Combine>
  void meet(Meeting& meeting, u32 size, bool memory, Combine combine);

  Warp& warp() { return *warps_[current_->index / kLanes]; }
  Meeting& all() { return all_; }

  // The meeting of some threads, and what they agree on: whether each of them brought true.
  Meeting& some() { return some_; }
  void agree(bool value) { pending_ = pending_ && value; }
  void agreed() { agreement_ = std::exchange(pending_, true); }
  bool agreement() const { return agreement_; }

  u32 threads() const { return launch_.threads; }

  void arrive(u64* barrier);
  void expect(u64* barrier, u32 bytes);
  bool done(const u64* barrier, u32 parity);
  void issue(Copy copy);
  void fence() { watch::release(&fenced_); }
  void pause();
  void perhaps_yield();
  void finish();

 private:
  void go_on(bool last = false);
  Fiber* next();
  void idle();
  void land_any();
  void landed(u64* barrier, u32 bytes);
  void completed(u64* barrier);
  Engine& engine(const u64* barrier);

  const Launch& launch_;
  const u32 index_;
  Chance chance_;
  u32 slowness_ = 0;
  std::vector<Fiber> fibers_;
  std::vector<std::unique_ptr<Warp>> warps_;
  char* stacks_ = nullptr;
  Meeting all_;
  Meeting some_;
  bool pending_ = true;
  bool agreement_ = true;
  std::vector<Fiber*> ready_;
  size_t first_ready_ = 0;
  std::vector<Fiber*> polling_;
  std::vector<Fiber*> parked_;
  std::vector<Copy> copies_;
  std::vector<std::unique_ptr<Engine>> engines_;
  u32 live_ = 0;
  u32 idle_rounds_ = 0;
  u32 turns_ = 0;
  char fenced_ = 0;
  Fiber* current_ = nullptr;
  Fiber main_;
};

// The block that runs on the calling operating-system thread.
extern thread_local Block* block;

// End the process: the kernel did what no chip allows.
[[noreturn]] void fault(const char* what);

template <class Combine>
void Block::meet(Meeting& meeting, u32 size, bool memory, Combine combine) {
  const watch::Unseen unseen;
  perhaps_yield();
  char* said = &meeting.said[meeting.round % 2];
  if (memory) watch::release(said);
  if (++meeting.arrived < size) {
    meeting.waiting.push_back(current_);
    go_on();
  } else {
    combine();
    meeting.arrived = 0;
    ++meeting.round;
    ready_.insert(ready_.end(), meeting.waiting.begin(), meeting.waiting.end());
    meeting.waiting.clear();
  }
  if (memory) watch::acquire(said);
}

}  // namespace amk::host
