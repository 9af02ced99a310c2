// ThreadSanitizer: each fiber and each engine is a thread to it, and only what a chip orders is ordered.
#include <sanitizer/tsan_interface.h>

#include "host/watch.h"

extern "C" const char* __tsan_default_options() { return "halt_on_error=1:exitcode=66"; }
extern "C" void AnnotateIgnoreReadsBegin(const char* file, int line);
extern "C" void AnnotateIgnoreReadsEnd(const char* file, int line);
extern "C" void AnnotateIgnoreWritesBegin(const char* file, int line);
extern "C" void AnnotateIgnoreWritesEnd(const char* file, int line);
extern "C" void __tsan_read_range(void* address, unsigned long size);
extern "C" void __tsan_write_range(void* address, unsigned long size);

namespace amk::host::watch {
namespace {

void* plain(const void* address) { return const_cast<void*>(address); }

char ended;  // a launch follows all that the ones before it did

}  // namespace

void adopt(Context& context) {
  context.handle = __tsan_get_current_fiber();
  acquire(&ended);
}

// Begins with what its creator has seen, which at a launch's start is every launch before.
void create(Context& context) { context.handle = __tsan_create_fiber(0); }
void destroy(Context& context) { __tsan_destroy_fiber(context.handle); }

void leave(Context&, Context& to, bool last) {
  if (last) {
    release(&ended);
    look_again();
  }
  __tsan_switch_to_fiber(to.handle, __tsan_switch_to_fiber_no_sync);
}

void arrived(Context&) {}
void release(const void* address) { __tsan_release(plain(address)); }
void acquire(const void* address) { __tsan_acquire(plain(address)); }
void reads(const void* address, size_t size) { __tsan_read_range(plain(address), size); }
void writes(const void* address, size_t size) { __tsan_write_range(plain(address), size); }
void forbid(const void*, size_t) {}
void allow(const void*, size_t) {}
void look_away() {
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}

void look_again() {
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

void act_as(Context& other) { __tsan_switch_to_fiber(other.handle, __tsan_switch_to_fiber_no_sync); }
void observe(const void*, size_t) {}
void launched(const char*) {}

}  // namespace amk::host::watch
