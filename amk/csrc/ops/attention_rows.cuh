// What attention begins with: queries, and in split 0 the step's own keys and values, normed and turned; and how a
// score enters the softmax.
#pragma once

#include "prim/number.cuh"
#include "vm/block.cuh"
#include "vm/stream.cuh"

namespace amk {

// One warp's share of a query's softmax.
template <class Config>
struct AttentionPart {
  float top;    // maximum score
  float total;  // sum of exponentials under it
  float sum[Config::kHeadDim];
};

template <class Config>
struct AttentionRows {
  static constexpr int kWarps = Config::kConsumerWarps;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kDim = Config::kHeadDim;
  static constexpr int kStride = Config::kHeadStride;  // elements of a cached row, padded to 16 bytes
  static constexpr int kQueries = Config::kGroup * Config::kTokensMax;
  static constexpr int kRows = static_cast<int>(PastPieces<Config>::kRows) > Config::kTokensMax
                                   ? static_cast<int>(PastPieces<Config>::kRows)
                                   : Config::kTokensMax;

  struct Run {
    float q[kQueries][kStride];
    float score[kQueries][kRows];
  };

  // In the work area. The warps' shares take the place of what a run of the past needs, once there are no more.
  struct Work {
    union {
      Run run;
      AttentionPart<Config> part[kWarps][Config::kGroup];
    };
    float fresh_k[Config::kTokensMax][kStride];
    float fresh_v[Config::kTokensMax][kStride];
    float top[kQueries];     // maximum score so far
    float total[kQueries];   // sum of exponentials under it
    float shrink[kQueries];  // what the last maximum weighs under the new one
    float q_norm[kQueries];
    float k_norm[Config::kTokensMax];
  };
  static_assert(sizeof(Work) <= Config::kWorkBytes, "attention does not fit the work area");

  Block<Config>& block;
  const AttentionTask& task;
  Work& work;
  u32 queries;  // group * tokens, query = head * tokens + row

  __device__ AttentionRows(Block<Config>& block, const AttentionTask& task)
      : block(block),
        task(task),
        work(*reinterpret_cast<Work*>(block.shared.work)),
        queries(Config::kGroup * block.tokens) {}

  // Rows in shared memory, seen by all. False when the launch is over.
  __device__ bool begin() {
    if (task.head_norm != kHeadNormNone) {
      norms();
      if (!block.meet()) return false;
    }
    load();
    return block.meet();
  }

  __device__ static float cached(const char* rows, u32 at) {
    if constexpr (Config::kKvBytes == 4) {
      return reinterpret_cast<const float*>(rows)[at];
    } else {
      return from_bf16(reinterpret_cast<const u16*>(rows)[at]);
    }
  }

  // A score as it enters the softmax: capped, and hidden from a row of the step that does not see the position.
  __device__ float scored(float dot, u32 position, u32 row) const {
    const u32 own = block.pos + row;
    if (position > own || position + task.window <= own) return minus_infinity();
    return task.softcap == 0.0f ? dot : task.softcap * tanhf(dot / task.softcap);
  }

 private:
  // 1 / sqrt(mean(x^2) + eps) of each query's and key's head, or of the row that it is part of; one warp each.
  __device__ void norms() {
    const float* qkv = reinterpret_cast<const float*>(task.qkv);
    const bool whole = task.head_norm == kHeadNormRow;
    const u32 query_norms = whole ? block.tokens : queries;
    const u32 key_norms = task.split == 0 ? block.tokens : 0;
    for (u32 item = block.warp; item < query_norms + key_norms; item += kWarps) {
      const bool key = item >= query_norms;
      const u32 at = key ? item - query_norms : item;
      u32 column = key ? task.k_column : task.q_column + at / block.tokens * kDim, width = kDim;
      if (whole) {
        column = key ? task.heads * kDim : 0;
        width = (key ? task.kv_heads : task.heads) * kDim;
      }
      const float* x = qkv + at % block.tokens * task.qkv_stride + column;
      float squares = 0.0f;
      for (u32 i = block.lane; i < width; i += kWarp) squares += x[i] * x[i];
      squares = warp_sum(squares);
      float* to = key ? work.k_norm : work.q_norm;
      if (block.lane == 0) to[at] = 1.0f / sqrtf(squares / width + (key ? task.k_eps : task.q_eps));
    }
  }

  // Rotated q and, in split 0, rotated k and plain v of the step's rows; these are appended to the cache.
  __device__ void load() {
    const float* qkv = reinterpret_cast<const float*>(task.qkv);
    const bool whole = task.head_norm == kHeadNormRow;
    for (u32 at = block.thread; at < queries * kDim; at += kThreads) {
      const u32 query = at / kDim, column = at % kDim;
      const u32 row = query % block.tokens, head = query / block.tokens;
      const Head from{qkv + row * task.qkv_stride + task.q_column + head * kDim,
                      gain(task.q_gain, whole ? head * kDim : 0), work.q_norm[whole ? row : query]};
      work.run.q[query][column] = turned(from, row, column) * task.scale;
    }
    for (u32 query = block.thread; query < queries; query += kThreads) {
      work.top[query] = minus_infinity();
      work.total[query] = 0.0f;
    }
    if (task.split != 0) return;
    for (u32 at = block.thread; at < block.tokens * kDim; at += kThreads) {
      const u32 row = at / kDim, column = at % kDim;
      const Head from{qkv + row * task.qkv_stride + task.k_column, gain(task.k_gain, 0), work.k_norm[row]};
      keep(task.k_cache, work.fresh_k[row], row, column, turned(from, row, column));
      keep(task.v_cache, work.fresh_v[row], row, column, qkv[row * task.qkv_stride + task.v_column + column]);
    }
  }

  // A head of a query or key before it is turned.
  struct Head {
    const float* x;
    const float* gain;  // null where there is no norm
    float norm;

    __device__ float at(u32 column) const { return gain == nullptr ? x[column] : x[column] * norm * gain[column]; }
  };

  __device__ const float* gain(u64 address, u32 column) const {
    return task.head_norm == kHeadNormNone ? nullptr : reinterpret_cast<const float*>(address) + column;
  }

  // Of the elements that turn, each and its partner half of them away turn by the angle of the row's position.
  __device__ float turned(const Head& head, u32 row, u32 column) const {
    const float value = head.at(column);
    if (column >= task.rotary_dim) return value;
    const u32 half = task.rotary_dim / 2;
    const u32 pair = column < half ? column : column - half;
    const float* rope = reinterpret_cast<const float*>(task.rope) + static_cast<u64>(block.pos + row) * task.rotary_dim;
    const float cosine = rope[pair], sine = rope[half + pair];
    return column < half ? value * cosine - head.at(column + half) * sine : value * cosine + head.at(pair) * sine;
  }

  __device__ void keep(u64 cache, float* fresh, u32 row, u32 column, float value) const {
    fresh[column] = value;  // not rounded: a step's own rows are read before they are kept
    const u64 at = static_cast<u64>(block.pos + row) * kStride + column;
    if constexpr (Config::kKvBytes == 4) {
      reinterpret_cast<float*>(cache)[at] = value;
    } else {
      reinterpret_cast<u16*>(cache)[at] = to_bf16(value);
    }
  }
};

}  // namespace amk
