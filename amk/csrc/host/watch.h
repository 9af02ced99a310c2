// What watches a build: nothing, AddressSanitizer, ThreadSanitizer, or the log of footprints. One file of watch/ is
// compiled in, and says what these mean there.
#pragma once

#include <cstddef>
#include <cstdint>

namespace amk::host {

// A flow of control with accesses of its own: a fiber, or the engine that makes copies.
struct Context {
  void* handle = nullptr;
  void* fake_stack = nullptr;
  const void* bottom = nullptr;  // of its stack
  size_t size = 0;
};

namespace watch {

// The context of the calling operating-system thread; a new one; one that will not run again.
void adopt(Context& context);
void create(Context& context);
void destroy(Context& context);

// Before and after the processor goes from one to another. `last`: the one left will not run again.
void leave(Context& from, Context& to, bool last);
void arrived(Context& now);

// What was done before the release of an address is seen after its acquire.
void release(const void* address);
void acquire(const void* address);

// A copy's accesses, made by the current context.
void reads(const void* address, size_t size);
void writes(const void* address, size_t size);

// Bytes that nobody may touch; bytes that may be used again.
void forbid(const void* address, size_t size);
void allow(const void* address, size_t size);

// Between these, accesses are the scheduler's own and nobody's business; releases and acquires still count.
void look_away();
void look_again();

// The current context goes on as `other` for a while, on the same stack.
void act_as(Context& other);

// Memory whose accesses are logged; after a launch, what was logged is appended to `path`.
void observe(const void* begin, size_t size);
void launched(const char* path);

struct Unseen {
  Unseen() { look_away(); }
  ~Unseen() { look_again(); }
};

}  // namespace watch

}  // namespace amk::host
