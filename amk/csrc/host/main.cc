// The host's chip as a process: it maps the memory that its owner made, and runs the launches that its owner asks for.
//
//   program FD BYTES [LOG]     maps the file descriptor and prints "base ADDRESS"
//   guard ADDRESS BYTES        nobody may touch these
//   observe ADDRESS BYTES      log the accesses to these in LOG, where the build does so
//   launch PARAMS WORKERS THREADS SHARED SEED
//                              runs and prints "done"; PARAMS is the address of the kernel's argument
#include <pthread.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "host/block.h"

namespace amk::host {
namespace {

struct Job {
  const Launch* launch;
  u32 index;
};

void* run_block(void* argument) {
  const Job& job = *static_cast<Job*>(argument);
  Block(*job.launch, job.index).run();
  return nullptr;
}

void run(const Launch& launch) {
  std::vector<Job> jobs;
  for (u32 i = 0; i < launch.workers; ++i) jobs.push_back({&launch, i});
  std::vector<pthread_t> threads(launch.workers);
  for (u32 i = 0; i < launch.workers; ++i) {
    if (pthread_create(&threads[i], nullptr, run_block, &jobs[i]) != 0) fault("no thread for a block");
  }
  for (pthread_t thread : threads) pthread_join(thread, nullptr);
}

void say(const char* text) {
  std::puts(text);
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** words) {
  if (count < 3) return 64;
  const size_t bytes = std::strtoull(words[2], nullptr, 10);
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, std::atoi(words[1]), 0);
  if (base == MAP_FAILED) return 71;
  say(("base " + std::to_string(reinterpret_cast<uintptr_t>(base))).c_str());
  char line[256];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    unsigned long long n[5] = {};
    if (std::sscanf(line, "guard %llu %llu", &n[0], &n[1]) == 2) {
      watch::forbid(reinterpret_cast<void*>(n[0]), n[1]);
    } else if (std::sscanf(line, "observe %llu %llu", &n[0], &n[1]) == 2) {
      watch::observe(reinterpret_cast<void*>(n[0]), n[1]);
    } else if (std::sscanf(line, "launch %llu %llu %llu %llu %llu", &n[0], &n[1], &n[2], &n[3], &n[4]) == 5) {
      Launch launch{{}, static_cast<u32>(n[1]), static_cast<u32>(n[2]), static_cast<u32>(n[3]), n[4]};
      std::memcpy(&launch.params, reinterpret_cast<void*>(n[0]), sizeof launch.params);
      run(launch);
      watch::launched(count > 3 ? words[3] : nullptr);
      say("done");
    } else {
      return 65;
    }
  }
  return 0;
}

}  // namespace amk::host

int main(int count, char** words) { return amk::host::main(count, words); }
