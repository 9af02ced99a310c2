// Generated from amk/codegen/abi.py; edit that.
#pragma once
#include "prim/thread.cuh"
namespace amk {
constexpr u32 kTaskBytes = 256;
constexpr u32 kWaitsMax = 4;
constexpr u32 kSignalsMax = 4;
constexpr u32 kCounterStride = 32;
constexpr u32 kInBlock = 4294967295u;
constexpr u32 kInWords = 4294967294u;
enum Opcode : u32 { kOpcodeBegin = 0, kOpcodeGemv = 1, kOpcodeAttention = 2, kOpcodeSample = 3, kOpcodeAddNorm = 4 };
enum Prologue : u32 { kPrologueNone = 0, kPrologueNorm = 1, kPrologueMergeSplits = 2, kPrologueLayerNorm = 3 };
enum Epilogue : u32 { kEpilogueStore = 0, kEpilogueAddResidual = 1, kEpilogueGatedMul = 2, kEpilogueArgmax = 3 };
enum Activation : u32 { kActivationSilu = 0, kActivationGelu = 1, kActivationGeluTanh = 2 };
enum HeadNorm : u32 { kHeadNormNone = 0, kHeadNormHead = 1, kHeadNormRow = 2 };
struct alignas(16) TaskHead {
  u32 opcode;
  u32 number;
  u32 wait_count;
  u32 wait_counter[4];
  int wait_threshold[4];
  u32 wait_each[4];
  u32 signal_count;
  u32 signals[4];
};
static_assert(sizeof(TaskHead) == 80);

struct alignas(16) BeginTask {
  u32 opcode;
  u32 number;
  u32 wait_count;
  u32 wait_counter[4];
  int wait_threshold[4];
  u32 wait_each[4];
  u32 signal_count;
  u32 signals[4];
  u64 stop;
};
static_assert(sizeof(BeginTask) == 96);

struct alignas(16) GemvTask {
  u32 opcode;
  u32 number;
  u32 wait_count;
  u32 wait_counter[4];
  int wait_threshold[4];
  u32 wait_each[4];
  u32 signal_count;
  u32 signals[4];
  u64 x;
  u64 stats;
  u64 gain;
  u64 shift;
  u64 weight;
  u64 bias;
  u64 scales;
  u64 out;
  u64 residual;
  u64 best_value;
  u64 best_index;
  u64 prompt_length;
  u32 k;
  u32 row_begin;
  u32 row_end;
  u32 x_stride;
  u32 out_stride;
  u32 splits;
  u32 split_stride;
  u32 heads;
  u32 shape;
  float eps;
  float scale;
  float softcap;
  int x_epoch;
  u32 x_epochs;
  int residual_epoch;
  u32 residual_epochs;
  int out_epoch;
  u32 out_epochs;
};
static_assert(sizeof(GemvTask) == 256);

struct alignas(16) AttentionTask {
  u32 opcode;
  u32 number;
  u32 wait_count;
  u32 wait_counter[4];
  int wait_threshold[4];
  u32 wait_each[4];
  u32 signal_count;
  u32 signals[4];
  u64 qkv;
  u64 k_cache;
  u64 v_cache;
  u64 rope;
  u64 q_gain;
  u64 k_gain;
  u64 out;
  u64 stats;
  u32 qkv_stride;
  u32 q_column;
  u32 k_column;
  u32 v_column;
  u32 q_head;
  u32 heads;
  u32 split;
  u32 splits;
  u32 kv_heads;
  u32 rotary_dim;
  u32 window;
  float scale;
  float softcap;
  float q_eps;
  float k_eps;
  u32 gate_counter;
  int gate_threshold;
  u32 gate_each;
  int qkv_epoch;
  u32 qkv_epochs;
};
static_assert(sizeof(AttentionTask) == 224);

struct alignas(16) SampleTask {
  u32 opcode;
  u32 number;
  u32 wait_count;
  u32 wait_counter[4];
  int wait_threshold[4];
  u32 wait_each[4];
  u32 signal_count;
  u32 signals[4];
  u64 best_value;
  u64 best_index;
  u64 prompt;
  u64 prompt_length;
  u64 eos;
  u64 table;
  u64 scales;
  u64 token;
  u64 stop;
  u64 next_hidden;
  u32 slots;
  u32 eos_slots;
  u32 hidden;
  u32 tiled;
  u32 group;
  float scale;
  int hidden_epoch;
  u32 hidden_epochs;
};
static_assert(sizeof(SampleTask) == 192);

struct alignas(16) AddNormTask {
  u32 opcode;
  u32 number;
  u32 wait_count;
  u32 wait_counter[4];
  int wait_threshold[4];
  u32 wait_each[4];
  u32 signal_count;
  u32 signals[4];
  u64 x;
  u64 gain;
  u64 residual;
  u64 out;
  u32 k;
  u32 column_begin;
  u32 column_end;
  u32 x_stride;
  u32 out_stride;
  float eps;
  float scale;
};
static_assert(sizeof(AddNormTask) == 144);

struct alignas(8) Params {
  u64 tasks;
  u64 queue_begin;
  u64 counters;
  u64 abort;
  u64 status;
  u64 reports;
  u64 watchdog_clocks;
  u64 clocks;
  u64 times;
  u32 tasks_total;
  u32 steps;
  u32 steps_done;
  u32 pos;
  u32 tokens;
};
static_assert(sizeof(Params) == 96);

struct alignas(8) Status {
  u32 steps;
  u32 cancel;
};
static_assert(sizeof(Status) == 8);

struct alignas(8) Report {
  u32 waiting;
  u32 task;
  u32 step;
  u32 counter;
  u32 value;
  u32 threshold;
};
static_assert(sizeof(Report) == 24);

struct alignas(8) Clocks {
  u64 shared;
  u64 own;
};
static_assert(sizeof(Clocks) == 16);

struct alignas(8) Times {
  u64 taken;
  u64 ready;
  u64 met;
  u64 done;
  u64 starved;
  u64 waiting;
};
static_assert(sizeof(Times) == 48);

}  // namespace amk
