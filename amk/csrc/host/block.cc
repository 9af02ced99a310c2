#include "host/block.h"

#include <sched.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "host/fiber.h"

extern "C" void amk_kernel(amk::Params params);
extern "C" __attribute__((weak)) void amk_kernel_of_rows(amk::Params params);

namespace amk {

// The block's dynamic shared memory, the most that any target has.
alignas(128) __thread char memory[256 * 1024];

}  // namespace amk

namespace amk::host {

thread_local Block* block = nullptr;

namespace {

constexpr size_t kStackBytes = 256 * 1024;

// Rounds in which nothing could go on before those that wait for barriers of their own block look at its flags again.
constexpr u32 kPatience = 8;

// Turns of a block's threads between two in which those that look at other blocks take part.
constexpr u32 kTurns = 1024;

constexpr u64 kPhase = 1ull << 63;
constexpr u32 kTransfer = 32;  // bits 32..62: bytes still to come
constexpr u32 kExpected = 16;  // bits 16..31: arrivals of a phase; below: those still to come

char* reserve(size_t bytes) {
  void* found = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) fault("no memory for the stacks of a block's threads");
  return static_cast<char*>(found);
}

void fiber_main() {
  watch::arrived(block->current().context);
  block->finish();
}

const char* parity_address(const u64* barrier, bool phase) {
  return reinterpret_cast<const char*>(barrier) + (phase ? 4 : 0);
}

void nap(long nanoseconds) {
  timespec time{0, nanoseconds};
  nanosleep(&time, nullptr);
}

}  // namespace

void fault(const char* what) {
  std::fprintf(stderr, "amk: block %u, thread %u: %s\n", block ? block->index() : 0, block ? block->current().index : 0,
               what);
  std::fflush(stderr);
  std::_Exit(67);
}

u32 Chance::below(u32 bound) {
  state_ ^= state_ >> 12;
  state_ ^= state_ << 25;
  state_ ^= state_ >> 27;
  return static_cast<u32>((state_ * 0x2545f4914f6cdd1dull) >> 33) % bound;
}

Block::Block(const Launch& launch, u32 index)
    : launch_(launch), index_(index), chance_(launch.seed, index), fibers_(launch.threads), live_(launch.threads) {
  block = this;
  current_ = &main_;
  watch::adopt(main_.context);
  if (chance_.one_in(2)) slowness_ = 100 + chance_.below(2000);
  // What nobody has written is not a number.
  std::memset(memory, 0xff, sizeof memory);
  watch::forbid(memory + launch.shared_bytes, sizeof memory - launch.shared_bytes);
  char* stacks = reserve(launch.threads * kStackBytes);
  watch::allow(stacks, launch.threads * kStackBytes);
  stacks_ = stacks;
  for (u32 i = 0; i < launch.threads; ++i) {
    Fiber& fiber = fibers_[i];
    char* stack = stacks + i * kStackBytes;
    fiber.index = i;
    fiber.stack_pointer = fresh_stack(stack, kStackBytes, fiber_main);
    fiber.context.bottom = stack;
    fiber.context.size = kStackBytes;
    watch::create(fiber.context);
    ready_.push_back(&fiber);
    if (i % kLanes == 0) warps_.push_back(std::make_unique<Warp>());
  }
}

Block::~Block() {
  for (Fiber& fiber : fibers_) watch::destroy(fiber.context);
  for (auto& engine : engines_) {
    watch::destroy(engine->reader);
    watch::destroy(engine->writer);
  }
  watch::allow(memory, sizeof memory);
  munmap(stacks_, launch_.threads * kStackBytes);
  block = nullptr;
}

void Block::run() {
  const watch::Unseen unseen;
  go_on();
  if (!copies_.empty()) fault("the block left with copies under way");
}

void Block::finish() {
  (amk_kernel_of_rows && launch_.params.tokens > 1 ? amk_kernel_of_rows : amk_kernel)(launch_.params);
  const watch::Unseen unseen;
  --live_;
  go_on(true);
  std::abort();
}

// Leave the running fiber, which has put itself where it will be found, for the next that can run.
void Block::go_on(bool last) {
  Fiber* from = current_;
  Fiber* to = live_ == 0 ? &main_ : next();
  if (to == from) return;
  current_ = to;
  watch::leave(from->context, to->context, last);
  amk_switch(&from->stack_pointer, to->stack_pointer);
  watch::arrived(current_->context);
}

Fiber* Block::next() {
  for (;;) {
    if (!copies_.empty() && (!chance_.any() || chance_.one_in(64))) land_any();
    // Those that look at other blocks get their turn even where the others never stop.
    if (++turns_ % kTurns == 0) {
      ready_.insert(ready_.end(), polling_.begin(), polling_.end());
      polling_.clear();
    }
    if (first_ready_ < ready_.size()) {
      if (chance_.any()) {
        std::swap(ready_[first_ready_], ready_[first_ready_ + chance_.below(ready_.size() - first_ready_)]);
        if (slowness_ != 0 && chance_.one_in(slowness_)) nap(chance_.below(20'000));
      }
      Fiber* found = ready_[first_ready_++];
      if (first_ready_ == ready_.size()) {
        ready_.clear();
        first_ready_ = 0;
      }
      return found;
    }
    idle();
  }
}

// Nothing can go on: a copy lands, or those that look at other blocks look again.
void Block::idle() {
  if (!copies_.empty()) return land_any();
  if (polling_.empty() && parked_.empty()) fault("its threads wait for each other: not all of a warp or block came");
  ready_.swap(polling_);
  if (++idle_rounds_ % kPatience == 0) {
    ready_.insert(ready_.end(), parked_.begin(), parked_.end());
    parked_.clear();
  }
  if (idle_rounds_ < 4) {
    sched_yield();
  } else {
    nap(20'000);
  }
}

void Block::pause() {
  const watch::Unseen unseen;
  polling_.push_back(current_);
  go_on();
}

void Block::perhaps_yield() {
  if (!chance_.one_in(4)) return;
  ready_.push_back(current_);
  go_on();
}

bool Block::done(const u64* barrier, u32 parity) {
  const watch::Unseen unseen;
  perhaps_yield();
  const bool phase = (*barrier & kPhase) != 0;
  if (phase != (parity != 0)) {
    watch::acquire(parity_address(barrier, parity != 0));
    return true;
  }
  current_->barrier = barrier;
  parked_.push_back(current_);
  go_on();
  current_->barrier = nullptr;
  return false;
}

void Block::expect(u64* barrier, u32 bytes) {
  const watch::Unseen unseen;
  *barrier += static_cast<u64>(bytes) << kTransfer;
  arrive(barrier);
}

void Block::arrive(u64* barrier) {
  const watch::Unseen unseen;
  perhaps_yield();
  watch::release(parity_address(barrier, (*barrier & kPhase) != 0));
  --*barrier;
  completed(barrier);
}

void Block::landed(u64* barrier, u32 bytes) {
  *barrier -= static_cast<u64>(bytes) << kTransfer;
  completed(barrier);
}

// If the phase is over: begin the next, and let those go on that waited for it.
void Block::completed(u64* barrier) {
  const u64 pending = *barrier & 0xffff;
  const u64 transfer = (*barrier & ~kPhase) >> kTransfer;
  if (pending != 0 || transfer != 0) return;
  const u64 expected = *barrier >> kExpected & 0xffff;
  *barrier = (*barrier ^ kPhase) | expected;
  idle_rounds_ = 0;
  const auto waits = std::stable_partition(parked_.begin(), parked_.end(),
                                           [&](const Fiber* fiber) { return fiber->barrier != barrier; });
  ready_.insert(ready_.end(), waits, parked_.end());
  parked_.erase(waits, parked_.end());
}

Engine& Block::engine(const u64* barrier) {
  for (auto& found : engines_) {
    if (found->barrier == barrier) return *found;
  }
  engines_.push_back(std::make_unique<Engine>());
  Engine& made = *engines_.back();
  made.barrier = barrier;
  watch::create(made.reader);
  watch::create(made.writer);
  return made;
}

void Block::issue(Copy copy) {
  const watch::Unseen unseen;
  if (copy.bytes % 16 != 0 || reinterpret_cast<uintptr_t>(copy.to) % 16 != 0 ||
      reinterpret_cast<uintptr_t>(copy.from) % 16 != 0) {
    fault("a copy is not of whole 16-byte words");
  }
  Engine& by = engine(copy.barrier);
  watch::release(&by.issued);
  copy.task = current_->task;
  if (chance_.any()) {
    // Until it has landed, what is there is not a number; and it may be read now or then.
    if (chance_.one_in(2)) {
      copy.early.reset(new char[copy.bytes]);
      std::memcpy(copy.early.get(), copy.from, copy.bytes);
    }
    for (u32 at = copy.first; at < copy.bytes; at += copy.stride) std::memset(copy.to + at, 0xff, copy.width);
  }
  copies_.push_back(std::move(copy));
  perhaps_yield();
}

void Block::land_any() {
  const size_t which = chance_.any() ? chance_.below(static_cast<u32>(copies_.size())) : 0;
  const Copy copy = std::move(copies_[which]);
  copies_.erase(copies_.begin() + which);
  Engine& by = engine(copy.barrier);
  Context& here = current_->context;
  const u32 task = std::exchange(current_->task, copy.task);
  const char* from = copy.early ? copy.early.get() : copy.from;
  watch::act_as(by.reader);
  watch::acquire(&fenced_);
  for (u32 at = copy.first; at < copy.bytes; at += copy.stride) watch::reads(copy.from + at, copy.width);
  watch::release(&by.moved);
  watch::act_as(by.writer);
  watch::acquire(&by.issued);
  watch::acquire(&by.moved);
  for (u32 at = copy.first; at < copy.bytes; at += copy.stride) {
    watch::writes(copy.to + at, copy.width);
    std::memcpy(copy.to + at, from + at, copy.width);
  }
  watch::release(parity_address(copy.barrier, (*copy.barrier & kPhase) != 0));
  watch::act_as(here);
  current_->task = task;
  if (copy.counted) {
    landed(copy.barrier, copy.bytes);
  } else {
    --*copy.barrier;
    completed(copy.barrier);
  }
}

}  // namespace amk::host
