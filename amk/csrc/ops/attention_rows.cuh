// What attention begins with: queries, and in split 0 the step's own keys and values, normed and turned; and how a
// score enters the softmax.
#pragma once

#include "vm/block.cuh"
#include "vm/stream.cuh"
#include "vm/values.cuh"

namespace amk {

// What the warps of a step of one row share over a long past: sets of queries, each of so many that its state fits a
// thread's registers.
template <class Config>
struct AttentionSplit {
  static constexpr int kWarps = Config::kConsumerWarps;
  static constexpr int kSets = least(power_above((Config::kGroup + 2) / 3), kWarps);
  static constexpr int kQueries = (Config::kGroup + kSets - 1) / kSets;
  static constexpr int kSetWarps = kWarps / kSets;
  static constexpr int kSlots = kSets * kQueries;

  // Of one cached row with the queries of a set.
  struct alignas(least(4 * power_above(kQueries), 16)) Scores {
    float of[kQueries];
  };

  alignas(16) float q[Config::kGroup][Config::kHeadStride];
  Scores score[2][kSets][Config::kRunRows];
  Scores most[2][kWarps];
  alignas(16) float part[kSlots][kSetWarps][(Config::kHeadDim + 3) / 4 * 4];
  alignas(16) float total[kSlots][(kSetWarps + 3) / 4 * 4];
  float top[kSlots];
  float own[kSlots];  // score of the step's own row
};

// What the warps share where the tensor core multiplies: a run of rows, cut into strips, and what a strip weighs for a
// set of queries. All but the queries lies in the order in which the lanes of a warp put it into the tensor core.
template <class Config, u32 kStepRows>
struct AttentionRun {
  static constexpr u32 kStrips = Config::kRunStrips;
  static constexpr u32 kQueries = Config::kGroup * kStepRows;
  static constexpr u32 kSetQueries = 8;
  static constexpr u32 kSets = divide_up(kQueries, kSetQueries);
  static constexpr u32 kSliceColumns = 16;
  static constexpr u32 kSlices = divide_up(Config::kHeadDim, kSliceColumns);
  static constexpr u32 kAllSlices = kSets * kSlices;

  alignas(16) float q[kQueries][Config::kHeadStride];
  uint4 value[kStrips][kSlices][kWarp];
  uint4 weight[kStrips][kSets][kWarp];
  float2 seen[kStrips][kSets * kSetQueries];  // the greatest score of a query, and the sum of its weights
};

// What the warps of a step of one row share over a short past: what each has made of a strip of it. Queries and values
// lie where they do in AttentionRun.
template <class Config>
struct AttentionShort {
  using Run = AttentionRun<Config, 1>;
  static constexpr u32 kPast = Config::kRunStrips > 1 ? Config::kRunStrips - 1 : 1;  // strips
  // Rows are padded, so that those of two queries, which a warp writes at once, lie on different banks.
  static constexpr u32 kSumColumns = (Run::kSlices + 1) * Run::kSliceColumns;

  decltype(Run::q) q;
  decltype(Run::value) value;
  alignas(16) float sum[kPast][Config::kGroup][kSumColumns];
  float2 seen[kPast + 1][Config::kGroup];  // and of the step's own row: the greatest score, and the sum of the weights
};

// `kStepRows` rows of the step at most: one, or as many as a step may have.
template <class Config, u32 kStepRows>
struct AttentionRows {
  static constexpr int kWarps = Config::kConsumerWarps;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kDim = Config::kHeadDim;
  static constexpr int kStride = Config::kHeadStride;  // elements of a cached row, padded to 16 bytes
  static constexpr u32 kNorm = Config::kHeadNorm;

  using Qkv = Values<Config::kTaggedQkv>;
  using Element = typename Chosen<Config::kKvBytes == 4, float, u16>::Type;  // of the cache

  // Whether the queries of one row are one set, and what the warps make of a short past fits.
  static constexpr u32 kOwnBytes = divide_up(kStepRows * (8 * kStride + 8), 16) * 16;
  static constexpr bool kShort = kStepRows == 1 && Config::kGroup <= AttentionRun<Config, 1>::kSetQueries &&
                                 kOwnBytes + sizeof(AttentionShort<Config>) <= Shared<Config>::kAttentionBytes;

  // In the work area. Over a long past a step of one row has its queries where they are over a short one.
  using Run = AttentionRun<Config, kStepRows>;
  struct Work {
    alignas(16) float fresh_k[kStepRows][kStride];
    alignas(16) float fresh_v[kStepRows][kStride];
    float q_norm[kStepRows];
    float k_norm[kStepRows];
    union {
      Run run;
      AttentionSplit<Config> split;
      typename Chosen<kShort, AttentionShort<Config>, AttentionSplit<Config>>::Type brief;
    };
  };
  static_assert(sizeof(Work) <= Shared<Config>::kAttentionBytes, "attention does not fit the work area");
  // Of a step of one row: what is loaded, and staged of the past, before the warps first meet. Steps of several rows
  // end their tasks with a meeting.
  static constexpr u32 kEarlyBytes =
      8 * (kStepRows * (kStride + 1)) + 32 + sizeof(Run) - sizeof(Run::weight) - sizeof(Run::seen);
  static_assert(kStepRows > 1 || kEarlyBytes <= Config::kWorkBytes, "values would lie in sums that are still read");

  Block<Config>& block;
  const AttentionTask& task;
  Work& work;
  const u32 tokens;   // rows of the step
  const u32 queries;  // group * tokens, query = head * tokens + row
  const Qkv qkv;

  __device__ __forceinline__ AttentionRows(Block<Config>& block, const AttentionTask& task)
      : block(block),
        task(task),
        work(*reinterpret_cast<Work*>(block.shared.work)),
        tokens(kStepRows == 1 ? 1 : block.tokens),
        queries(Config::kGroup * tokens),
        qkv(task.qkv, block.epoch(task.qkv_epoch, task.qkv_epochs)) {}

  // Rows in shared memory, seen by all. False when the launch is over.
  __device__ __forceinline__ bool begin() {
    if (!block.template open<Config::kTaggedQkv>(head())) return false;
    if (kNorm == kHeadNormRow) {
      norms();
      if (!block.meet()) return false;
    }
    load();
    if (Config::kTaggedQkv) block.begun(head());
    return block.meet();
  }

  // Nothing but the queries' words, which say that the task may write.
  __device__ __forceinline__ bool see_queries() const {
    if (!block.template open<Config::kTaggedQkv>(head())) return false;
    if (!Config::kTaggedQkv) return true;
    const u32 begin = kNorm == kHeadNormRow ? 0 : task.q_column;
    const u32 width = (kNorm == kHeadNormRow ? task.heads : Config::kGroup) * kDim;
    block.template await<Config::kTaggedQkv>(head(), epoch(), [&](u32& missing) {
      for (u32 at = block.thread; at < tokens * width; at += kThreads) {
        qkv.get(at / width * task.qkv_stride + begin + at % width, missing);
      }
    });
    block.begun(head());
    return block.meet();
  }

  // Warps that have none of the step's own rows to load; all, where each has some.
  __device__ __forceinline__ u32 idle_warps() const {
    const u32 loaded = heads() * tokens;
    return loaded < kWarps ? kWarps - loaded : kWarps;
  }

  // The step's own keys and values to the cache, once all have read what the task reads. By the last threads: the first
  // ones have results to finish.
  __device__ __forceinline__ void append() const {
    if (task.split != 0) return;
    for (u32 at = kThreads - 1 - block.thread; at < tokens * kDim; at += kThreads) {
      const u32 row = at / kDim, column = at % kDim;
      keep(task.k_cache, row, column, work.fresh_k[row][column]);
      keep(task.v_cache, row, column, work.fresh_v[row][column]);
    }
  }

  // Where results of a row of the step go, from the first of the task's queries on, and their maxima and sums.
  __device__ __forceinline__ float* out(u32 row) const {
    return reinterpret_cast<float*>(task.out) + (static_cast<u64>(row) * task.heads + task.q_head) * kDim;
  }
  __device__ __forceinline__ float2* stats(u32 row) const {
    return reinterpret_cast<float2*>(task.stats) + row * task.heads + task.q_head;
  }

  // Four neighbours of a head; zeros behind its last, where anything may lie.
  template <class T>
  __device__ __forceinline__ static float4 four(const T* row, int column) {
    if (column >= kDim) return {0.0f, 0.0f, 0.0f, 0.0f};
    float4 found = load_four(row + column);
    if (column + 1 >= kDim) found.y = 0.0f;
    if (column + 2 >= kDim) found.z = 0.0f;
    if (column + 3 >= kDim) found.w = 0.0f;
    return found;
  }

  // A score as it enters the softmax: capped, and hidden from a row of the step that does not see the position.
  __device__ __forceinline__ float scored(float dot, u32 position, u32 row) const {
    const u32 own = block.pos + row, window = task.window;
    const bool hidden = (position > own) | (position + window <= own);  // chosen: to branch takes longer
    return hidden ? minus_infinity() : capped(dot);
  }

  __device__ __forceinline__ float capped(float dot) const {
    return Config::kSoftcap ? task.softcap * tanhf(dot / task.softcap) : dot;
  }

  // What has seen nothing yet weighs nothing, which minus infinity less itself would not say.
  __device__ __forceinline__ static float finite(float top) { return top == minus_infinity() ? 0.0f : top; }

 private:
  static constexpr int kEach = (kDim + kWarp - 1) / kWarp;  // elements of a head that a lane turns

  __device__ __forceinline__ const TaskHead& head() const { return reinterpret_cast<const TaskHead&>(task); }
  // Of each of the step's rows: the queries, and in split 0 the key and the value.
  __device__ __forceinline__ u32 heads() const { return Config::kGroup + (task.split == 0 ? 2 : 0); }
  __device__ __forceinline__ u32 epoch() const { return block.epoch(task.qkv_epoch, task.qkv_epochs); }

  // 1 / sqrt(mean(x^2) + eps) of the whole rows that queries and keys are parts of; one warp each.
  __device__ __forceinline__ void norms() {
    const u32 kinds = task.split == 0 ? 2 : 1;
    for (u32 item = block.warp; item < kinds * tokens; item += kWarps) {
      const u32 row = item % tokens;
      const bool key = item >= tokens;
      const u32 width = (key ? task.kv_heads : task.heads) * kDim;
      const u32 begin = row * task.qkv_stride + (key ? task.heads * kDim : 0);
      float squares = 0.0f;
      block.template await<Config::kTaggedQkv>(head(), epoch(), [&](u32& missing) {
        squares = 0.0f;
        for (u32 i = block.lane; i < width; i += kWarp) {
          const float x = qkv.get(begin + i, missing);
          squares += x * x;
        }
      });
      const float norm = inverse_root(quotient(warp_sum(squares), width) + (key ? task.k_eps : task.q_eps));
      if (block.lane == 0) (key ? work.k_norm : work.q_norm)[row] = norm;
    }
  }

  // Rotated q and, in split 0, rotated k and plain v of the step's rows, not rounded to the cache's type. A warp a
  // head.
  __device__ __forceinline__ void load() {
#pragma unroll 1
    for (u32 item = block.warp; item < heads() * tokens; item += kWarps) {
      const u32 row = item % tokens, head = item / tokens;
      const bool query = head < Config::kGroup, key = head == Config::kGroup;
      const u32 at = query ? task.q_column + head * kDim : key ? task.k_column : task.v_column;
      const u64 gain = query ? task.q_gain + (kNorm == kHeadNormRow ? 4 * head * kDim : 0) : task.k_gain;
      float made[kEach];
      turn({row * task.qkv_stride + at, reinterpret_cast<const float*>(gain), query ? task.q_eps : task.k_eps,
            (query ? work.q_norm : work.k_norm)[row], query || key},
           row, made);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (!inside(i)) continue;
        if (query) {
          work.run.q[head * tokens + row][column(i)] = made[i] * task.scale;
        } else {
          (key ? work.fresh_k : work.fresh_v)[row][column(i)] = made[i];
        }
      }
    }
  }

  // This lane's i-th element of a head.
  __device__ __forceinline__ int column(int i) const { return block.lane + i * kWarp; }
  __device__ __forceinline__ bool inside(int i) const { return column(i) < kDim; }

  // A head as it comes out of the projection.
  struct Head {
    u32 x;              // where it begins in what the projection made
    const float* gain;  // of its norm
    float eps;
    float row_norm;  // where whole rows are normed
    bool turns;      // and is normed: not so a value
  };

  // This lane's elements, normed and turned. Of the elements that turn, each and its partner half of them away turn by
  // the angle of the row's position.
  __device__ __forceinline__ void turn(const Head& head, u32 row, float (&made)[kEach]) const {
    if (kStepRows > 1) block.identify();  // again: what follows from it would hold registers
    const u32 turning = head.turns ? task.rotary_dim : 0, half = task.rotary_dim / 2;
    const float* rope = reinterpret_cast<const float*>(task.rope) + static_cast<u64>(block.pos + row) * task.rotary_dim;
    float own[kEach], other[kEach], cosine[kEach], sine[kEach];
    const auto angles = [&] {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        sine[i] = 0.0f;
        cosine[i] = 1.0f;
        const u32 at = column(i);
        if (!inside(i) || at >= turning) continue;
        cosine[i] = rope[at < half ? at : at - half];
        sine[i] = rope[at < half ? half + at : at];
      }
    };
    if (kStepRows == 1) angles();  // before they are needed; of several rows they would hold registers
    // All of these are asked for at once, and none behind a branch: what has no partner is its own, and what lies
    // behind the head its last element.
    block.template await<Config::kTaggedQkv>(this->head(), epoch(), [&](u32& missing) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const u32 at = least(column(i), kDim - 1), away = at < half ? half : 0 - half;
        own[i] = qkv.get(head.x + at, missing);
        other[i] = qkv.get(head.x + at + (at < turning ? away : 0), missing);
      }
    });
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const u32 at = column(i);
      if (!inside(i)) own[i] = 0.0f;  // a norm adds up its square
      other[i] = at >= turning ? 0.0f : at < half ? -other[i] : other[i];
    }
    if (kNorm != kHeadNormNone && head.turns) {
      float norm = head.row_norm;
      if (kNorm == kHeadNormHead) {
        float squares = 0.0f;
#pragma unroll
        for (int i = 0; i < kEach; ++i) squares += own[i] * own[i];
        norm = inverse_root(warp_sum(squares) * (1.0f / kDim) + head.eps);
      }
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        if (!inside(i)) continue;
        const u32 at = column(i);
        own[i] *= norm * head.gain[at];
        if (at < turning) other[i] *= norm * head.gain[at < half ? at + half : at - half];
      }
    }
    if (kStepRows > 1) angles();
#pragma unroll
    for (int i = 0; i < kEach; ++i) made[i] = own[i] * cosine[i] + other[i] * sine[i];
  }

  __device__ __forceinline__ void keep(u64 cache, u32 row, u32 column, float value) const {
    const u64 at = static_cast<u64>(block.pos + row) * kStride + column;
    if constexpr (Config::kKvBytes == 4) {
      reinterpret_cast<float*>(cache)[at] = value;
    } else {
      reinterpret_cast<u16*>(cache)[at] = to_bf16(value);
    }
  }
};

}  // namespace amk
