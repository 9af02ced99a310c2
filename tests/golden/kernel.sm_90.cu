#include "vm/kernel.cuh"

// What each constant is: amk/codegen/shapes.py.
struct Gemv0 {
  static constexpr unsigned kColumns = 576;
  static constexpr unsigned kPrologue = 1;
  static constexpr unsigned kEpilogue = 0;
  static constexpr unsigned kActivation = 0;
  static constexpr bool kBias = false;
  static constexpr bool kLastRowOnly = false;
  static constexpr bool kAligned = true;
  static constexpr bool kTaggedX = true;
  static constexpr bool kTaggedOut = true;
  static constexpr bool kQuantized = false;
  static constexpr unsigned kGroupColumns = 0;
};
struct Gemv1 {
  static constexpr unsigned kColumns = 576;
  static constexpr unsigned kPrologue = 1;
  static constexpr unsigned kEpilogue = 2;
  static constexpr unsigned kActivation = 0;
  static constexpr bool kBias = false;
  static constexpr bool kLastRowOnly = false;
  static constexpr bool kAligned = true;
  static constexpr bool kTaggedX = true;
  static constexpr bool kTaggedOut = true;
  static constexpr bool kQuantized = false;
  static constexpr unsigned kGroupColumns = 0;
};
struct Gemv2 {
  static constexpr unsigned kColumns = 576;
  static constexpr unsigned kPrologue = 1;
  static constexpr unsigned kEpilogue = 3;
  static constexpr unsigned kActivation = 0;
  static constexpr bool kBias = false;
  static constexpr bool kLastRowOnly = true;
  static constexpr bool kAligned = true;
  static constexpr bool kTaggedX = true;
  static constexpr bool kTaggedOut = false;
  static constexpr bool kQuantized = false;
  static constexpr unsigned kGroupColumns = 0;
};
struct Gemv3 {
  static constexpr unsigned kColumns = 576;
  static constexpr unsigned kPrologue = 2;
  static constexpr unsigned kEpilogue = 1;
  static constexpr unsigned kActivation = 0;
  static constexpr bool kBias = false;
  static constexpr bool kLastRowOnly = false;
  static constexpr bool kAligned = true;
  static constexpr bool kTaggedX = false;
  static constexpr bool kTaggedOut = true;
  static constexpr bool kQuantized = false;
  static constexpr unsigned kGroupColumns = 0;
};
struct Gemv4 {
  static constexpr unsigned kColumns = 1536;
  static constexpr unsigned kPrologue = 0;
  static constexpr unsigned kEpilogue = 1;
  static constexpr unsigned kActivation = 0;
  static constexpr bool kBias = false;
  static constexpr bool kLastRowOnly = false;
  static constexpr bool kAligned = true;
  static constexpr bool kTaggedX = true;
  static constexpr bool kTaggedOut = true;
  static constexpr bool kQuantized = false;
  static constexpr unsigned kGroupColumns = 0;
};

// What each constant is: amk/codegen/config.py.
struct Config {
  static constexpr int kConsumerWarps = 16;
  static constexpr int kStages = 4;
  static constexpr int kStageBytes = 32768;
  static constexpr int kInFlightBytes = 32768;
  static constexpr int kWorkBytes = 65664;
  static constexpr int kSharedBytes = 217216;
  static constexpr int kPastRows = 128;
  static constexpr int kRunRows = 256;
  static constexpr int kRunStrips = 9;
  static constexpr int kTokensMax = 8;
  static constexpr int kHeadDim = 64;
  static constexpr int kHeadStride = 64;
  static constexpr int kGroup = 3;
  static constexpr int kKvBytes = 4;
  static constexpr int kHeadNorm = 0;
  static constexpr bool kSoftcap = false;
  static constexpr bool kTaggedHidden = true;
  static constexpr bool kTaggedQkv = true;

  // Runs what is made for a shape.
  template <class Run>
  static __device__ bool with_shape(unsigned shape, Run run) {
    switch (shape) {
      case 1:
        return run(Gemv1{});
      case 2:
        return run(Gemv2{});
      case 3:
        return run(Gemv3{});
      case 4:
        return run(Gemv4{});
      default:
        return run(Gemv0{});
    }
  }
};

// Dynamic shared memory need not be aligned as the struct is: the block moves its start up.
static_assert(sizeof(amk::Shared<Config>) + alignof(amk::Shared<Config>) <= 217216,
              "a block's shared memory is more than the launch asks for");

extern "C" __global__ void __launch_bounds__(544, 1)
amk_kernel(const __grid_constant__ amk::Params params) {
  amk::run_worker<true, Config>(params);
}

extern "C" __global__ void __launch_bounds__(544, 1)
amk_kernel_of_rows(const __grid_constant__ amk::Params params) {
  amk::run_worker<false, Config>(params);
}
