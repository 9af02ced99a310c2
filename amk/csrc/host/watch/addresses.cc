// AddressSanitizer: it is told of each stack, and of the bytes that nobody may touch.
#include <pthread.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>

#include "host/watch.h"

extern "C" const char* __asan_default_options() { return "detect_leaks=0:detect_stack_use_after_return=0"; }

namespace amk::host::watch {

void adopt(Context& context) {
  pthread_attr_t attributes;
  void* bottom;
  size_t size;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &bottom, &size);
  pthread_attr_destroy(&attributes);
  context.bottom = bottom;
  context.size = size;
}

void create(Context&) {}
void destroy(Context&) {}

void leave(Context& from, Context& to, bool last) {
  __sanitizer_start_switch_fiber(last ? nullptr : &from.fake_stack, to.bottom, to.size);
}

void arrived(Context& now) { __sanitizer_finish_switch_fiber(now.fake_stack, nullptr, nullptr); }
void release(const void*) {}
void acquire(const void*) {}

// The copies are made by code that is checked like any other.
void reads(const void*, size_t) {}
void writes(const void*, size_t) {}

void forbid(const void* address, size_t size) { __asan_poison_memory_region(address, size); }
void allow(const void* address, size_t size) { __asan_unpoison_memory_region(address, size); }
void look_away() {}
void look_again() {}
void act_as(Context&) {}
void observe(const void*, size_t) {}
void launched(const char*) {}

}  // namespace amk::host::watch
