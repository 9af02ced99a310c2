#include "host/fiber.h"

#include <cstdint>

#if defined(__x86_64__)

asm(R"(
.text
.globl amk_switch
.type amk_switch, @function
amk_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size amk_switch, .-amk_switch
.section .note.GNU-stack,"",@progbits
.text
)");

namespace amk::host {

void* fresh_stack(char* stack, size_t size, void (*entry)()) {
  auto top = reinterpret_cast<uintptr_t>(stack + size) & ~uintptr_t{15};
  auto* word = reinterpret_cast<uintptr_t*>(top);
  *--word = 0;  // where entry would return to
  *--word = reinterpret_cast<uintptr_t>(entry);
  for (int i = 0; i < 6; ++i) *--word = 0;
  return word;
}

}  // namespace amk::host

#elif defined(__aarch64__)

asm(R"(
.text
.globl amk_switch
.type amk_switch, %function
amk_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size amk_switch, .-amk_switch
)");

namespace amk::host {

void* fresh_stack(char* stack, size_t size, void (*entry)()) {
  auto top = reinterpret_cast<uintptr_t>(stack + size) & ~uintptr_t{15};
  auto* word = reinterpret_cast<uintptr_t*>(top - 160);
  for (int i = 0; i < 20; ++i) word[i] = 0;
  word[11] = reinterpret_cast<uintptr_t>(entry);  // x30
  return word;
}

}  // namespace amk::host

#else
#error "the host build switches contexts on x86-64 and AArch64"
#endif
