// A context switch for the System V ABI of x86-64 and for AArch64: callee-saved registers on the stack that is left.
#pragma once

#include <cstddef>

// Keep this stack's pointer in *from and go on with the stack that `to` points to.
extern "C" void amk_switch(void** from, void* to);

namespace amk::host {

// A stack pointer that amk_switch may go to: it calls `entry`, which never returns.
void* fresh_stack(char* stack, size_t size, void (*entry)());

}  // namespace amk::host
