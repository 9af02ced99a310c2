#include "vm/kernel.cuh"

// What each constant is: amk/codegen/config.py.
struct Config {
  static constexpr int kConsumerWarps = 16;
  static constexpr int kStages = 8;
  static constexpr int kStageBytes = 16384;
  static constexpr int kInFlightBytes = 32768;
  static constexpr int kWorkBytes = 65792;
  static constexpr int kPastRows = 64;
  static constexpr int kTokensMax = 8;
  static constexpr int kHeadDim = 64;
  static constexpr int kHeadStride = 64;
  static constexpr int kGroup = 3;
  static constexpr int kKvBytes = 4;
};

// Dynamic shared memory need not be aligned as the struct is: the block moves its start up.
static_assert(sizeof(amk::Shared<Config>) + alignof(amk::Shared<Config>) <= 217344,
              "a block's shared memory is more than the launch asks for");

extern "C" __global__ void __launch_bounds__(544, 1)
amk_kernel(const __grid_constant__ amk::Params params) {
  amk::run_worker<Config>(params);
}
