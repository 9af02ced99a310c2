// The log of footprints: the compiler's hooks for ThreadSanitizer, without ThreadSanitizer.
//
// A record of the log: u32 task, u32 kind, u32 block, u32 thread, u64 address, u64 bytes. Those of one block are in the
// order in which they happened. A copy is logged where it lands, under whatever thread then ran.
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "host/block.h"
#include "host/watch.h"

namespace amk::host {
namespace {

enum Kind : uint32_t { kRead = 0, kWrite = 1, kSignal = 2, kAcquire = 3, kCopy = 4 };

struct Record {
  uint32_t task;
  uint32_t kind;
  uint32_t block;
  uint32_t thread;
  uint64_t address;
  uint64_t bytes;
};

struct Span {
  uint64_t begin;
  uint64_t end;
};

std::vector<Span> observed;
std::mutex guard;
std::vector<Record> records;

void note(const volatile void* where, size_t bytes, Kind kind) {
  const auto address = reinterpret_cast<uint64_t>(where);
  for (const Span& span : observed) {
    if (address >= span.end || address + bytes <= span.begin) continue;
    const Fiber& by = block->current();
    const Record made{by.task, kind, block->index(), by.index, address, bytes};
    const std::lock_guard<std::mutex> lock(guard);
    records.push_back(made);
    return;
  }
}

}  // namespace

namespace watch {

void adopt(Context&) {}
void create(Context&) {}
void destroy(Context&) {}
void leave(Context&, Context&, bool) {}
void arrived(Context&) {}
void release(const void*) {}
void acquire(const void*) {}
void reads(const void* address, size_t size) { note(address, size, kCopy); }
void writes(const void* address, size_t size) { note(address, size, kWrite); }
void forbid(const void*, size_t) {}
void allow(const void*, size_t) {}
void look_away() {}
void look_again() {}
void act_as(Context&) {}

void observe(const void* begin, size_t size) {
  const auto address = reinterpret_cast<uint64_t>(begin);
  observed.push_back({address, address + size});
}

void launched(const char* path) {
  if (path == nullptr) return;
  FILE* log = std::fopen(path, "ab");
  if (log == nullptr || std::fwrite(records.data(), sizeof(Record), records.size(), log) != records.size() ||
      std::fclose(log) != 0) {
    std::fprintf(stderr, "amk: the log %s cannot be written\n", path);
    std::_Exit(74);
  }
  records.clear();
}

}  // namespace watch
}  // namespace amk::host

extern "C" {

using namespace amk::host;

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

#define AMK_ACCESS(bytes)                                                           \
  void __tsan_read##bytes(void* address) { note(address, bytes, kRead); }           \
  void __tsan_write##bytes(void* address) { note(address, bytes, kWrite); }         \
  void __tsan_unaligned_read##bytes(void* address) { note(address, bytes, kRead); } \
  void __tsan_unaligned_write##bytes(void* address) { note(address, bytes, kWrite); }
AMK_ACCESS(1)
AMK_ACCESS(2)
AMK_ACCESS(4)
AMK_ACCESS(8)
AMK_ACCESS(16)

void __tsan_read_range(void* address, unsigned long size) { note(address, size, kRead); }
void __tsan_write_range(void* address, unsigned long size) { note(address, size, kWrite); }
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

unsigned __tsan_atomic32_load(const volatile unsigned* address, int order) {
  note(address, 4, order == __ATOMIC_RELAXED ? kRead : kAcquire);
  return __atomic_load_n(address, __ATOMIC_SEQ_CST);
}

void __tsan_atomic32_store(volatile unsigned* address, unsigned value, int) {
  note(address, 4, kWrite);
  __atomic_store_n(address, value, __ATOMIC_SEQ_CST);
}

unsigned long __tsan_atomic64_load(const volatile unsigned long* address, int) {
  note(address, 8, kRead);
  return __atomic_load_n(address, __ATOMIC_SEQ_CST);
}

void __tsan_atomic64_store(volatile unsigned long* address, unsigned long value, int) {
  note(address, 8, kWrite);
  __atomic_store_n(address, value, __ATOMIC_SEQ_CST);
}

unsigned __tsan_atomic32_fetch_add(volatile unsigned* address, unsigned value, int) {
  note(address, 4, kSignal);
  return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);
}

}  // extern "C"
