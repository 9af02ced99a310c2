// attention: one KV head's query group over one split of the past, by online softmax, in one fixed order.
#pragma once

#include "prim/number.cuh"
#include "vm/block.cuh"
#include "vm/stream.cuh"

namespace amk {

template <class Config>
struct AttentionOp {
  static constexpr int kWarps = Config::kConsumerWarps;
  static constexpr int kThreads = kWarps * kWarp;
  static constexpr int kDim = Config::kHeadDim;
  static constexpr int kHalf = kDim / 2;
  static constexpr int kStride = Config::kHeadStride;  // elements of a cached row, padded to 16 bytes
  static constexpr int kQueries = Config::kGroup * Config::kTokensMax;
  static constexpr int kRows = static_cast<int>(PastPieces<Config>::kRows) > Config::kTokensMax
                                   ? static_cast<int>(PastPieces<Config>::kRows)
                                   : Config::kTokensMax;
  static constexpr int kMine = (kQueries * kDim + kThreads - 1) / kThreads;  // sums a thread keeps

  // In the work area.
  struct Work {
    float q[kQueries][kStride];
    float score[kQueries][kRows];
    float fresh_k[Config::kTokensMax][kStride];
    float fresh_v[Config::kTokensMax][kStride];
    float top[kQueries];     // maximum score so far
    float total[kQueries];   // sum of exponentials under it
    float shrink[kQueries];  // what the last maximum weighs under the new one
  };
  static_assert(sizeof(Work) <= Config::kWorkBytes, "attention does not fit the work area");

  Block<Config>& block;
  const AttentionTask& task;
  Work& work;
  u32 queries;  // group * tokens, query = head * tokens + row
  float mine[kMine];

  __device__ AttentionOp(Block<Config>& block, const AttentionTask& task)
      : block(block),
        task(task),
        work(*reinterpret_cast<Work*>(block.shared.work)),
        queries(Config::kGroup * block.tokens),
        mine() {}

  // False when the launch is over.
  __device__ bool run() {
    load();
    if (!block.meet()) return false;
    const PastPieces<Config> cut(task, block.pos);
    for (u32 row = cut.low; row < cut.high; row += PastPieces<Config>::kRows) {
      if (!past(least(PastPieces<Config>::kRows, cut.high - row))) return false;
    }
    if (task.split == 0 && !fresh()) return false;
    finish();
    return true;
  }

 private:
  // Rotated q and, in split 0, rotated k and plain v of the step's rows; these are appended to the cache.
  __device__ void load() {
    const float* qkv = reinterpret_cast<const float*>(task.qkv);
    for (u32 at = block.thread; at < queries * kHalf; at += kThreads) {
      const u32 query = at / kHalf, pair = at % kHalf;
      const u32 row = query % block.tokens, head = query / block.tokens;
      const float* from = qkv + row * task.qkv_stride + task.q_column + head * kDim;
      float first, second;
      rotate(from, row, pair, first, second);
      work.q[query][pair] = first * task.scale;
      work.q[query][pair + kHalf] = second * task.scale;
    }
    for (u32 query = block.thread; query < queries; query += kThreads) {
      work.top[query] = minus_infinity();
      work.total[query] = 0.0f;
    }
    if (task.split != 0) return;
    for (u32 at = block.thread; at < block.tokens * kHalf; at += kThreads) {
      const u32 row = at / kHalf, pair = at % kHalf;
      float first, second;
      rotate(qkv + row * task.qkv_stride + task.k_column, row, pair, first, second);
      keep(task.k_cache, work.fresh_k[row], row, pair, first);
      keep(task.k_cache, work.fresh_k[row], row, pair + kHalf, second);
    }
    for (u32 at = block.thread; at < block.tokens * kDim; at += kThreads) {
      const u32 row = at / kDim, column = at % kDim;
      keep(task.v_cache, work.fresh_v[row], row, column, qkv[row * task.qkv_stride + task.v_column + column]);
    }
  }

  // Element `pair` and its partner half a head away, turned by the angle of the row's position.
  __device__ void rotate(const float* x, u32 row, u32 pair, float& first, float& second) const {
    const float* rope = reinterpret_cast<const float*>(task.rope) + static_cast<u64>(block.pos + row) * kDim;
    const float cosine = rope[pair], sine = rope[kHalf + pair];
    first = x[pair] * cosine - x[pair + kHalf] * sine;
    second = x[pair + kHalf] * cosine + x[pair] * sine;
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

  __device__ static float cached(const char* rows, u32 at) {
    if constexpr (Config::kKvBytes == 4) {
      return reinterpret_cast<const float*>(rows)[at];
    } else {
      return from_bf16(reinterpret_cast<const u16*>(rows)[at]);
    }
  }

  // A run of the past: a piece of k, then the piece of v of the same rows.
  __device__ bool past(u32 rows) {
    const char* k = block.take();
    if (k == nullptr) return false;
    for (u32 at = block.thread; at < queries * rows; at += kThreads) {
      const u32 query = at / rows, row = at % rows;
      float dot = 0.0f;
      // Each row starts at another column, so that the rows of a warp lie on different banks.
#pragma unroll 4
      for (u32 i = 0, column = row % kDim; i < kDim; ++i) {
        dot += work.q[query][column] * cached(k, row * kStride + column);
        column = column + 1 == kDim ? 0 : column + 1;
      }
      work.score[query][row] = dot;
    }
    block.give_back();
    if (!block.meet()) return false;
    weigh(rows);
    if (!block.meet()) return false;
    const char* v = block.take();
    if (v == nullptr) return false;
    accumulate(rows, [&](u32 row, u32 column) { return cached(v, row * kStride + column); });
    block.give_back();
    return block.meet();  // before the next run's scores
  }

  // The step's own rows, each seen by itself and later ones.
  __device__ bool fresh() {
    for (u32 at = block.thread; at < queries * block.tokens; at += kThreads) {
      const u32 query = at / block.tokens, row = at % block.tokens;
      float dot = 0.0f;
#pragma unroll 4
      for (u32 column = 0; column < kDim; ++column) dot += work.q[query][column] * work.fresh_k[row][column];
      work.score[query][row] = row <= query % block.tokens ? dot : minus_infinity();
    }
    if (!block.meet()) return false;
    weigh(block.tokens);
    if (!block.meet()) return false;
    accumulate(block.tokens, [&](u32 row, u32 column) { return work.fresh_v[row][column]; });
    return true;
  }

  // Scores of a run to weights under the new maximum; one warp a query.
  __device__ void weigh(u32 rows) {
    for (u32 query = block.warp; query < queries; query += kWarps) {
      float top = work.top[query];
      for (u32 row = block.lane; row < rows; row += kWarp) top = fmaxf(top, work.score[query][row]);
      for (int mask = kWarp / 2; mask > 0; mask /= 2) top = fmaxf(top, shuffle_xor(top, mask));
      float total = 0.0f;
      for (u32 row = block.lane; row < rows; row += kWarp) {
        const float weight = expf(work.score[query][row] - top);
        work.score[query][row] = weight;
        total += weight;
      }
      total = warp_sum(total);
      warp_sync();  // every lane has read the last maximum
      if (block.lane == 0) {
        const float shrink = expf(work.top[query] - top);
        work.shrink[query] = shrink;
        work.total[query] = work.total[query] * shrink + total;
        work.top[query] = top;
      }
    }
  }

  template <class Value>
  __device__ void accumulate(u32 rows, Value value) {
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const u32 at = block.thread + i * kThreads;
      if (at >= queries * kDim) continue;
      const u32 query = at / kDim, column = at % kDim;
      float sum = mine[i] * work.shrink[query];
#pragma unroll 2
      for (u32 row = 0; row < rows; ++row) sum += work.score[query][row] * value(row, column);
      mine[i] = sum;
    }
  }

  __device__ void finish() {
    float* out = reinterpret_cast<float*>(task.out);
#pragma unroll
    for (int i = 0; i < kMine; ++i) {
      const u32 at = block.thread + i * kThreads;
      if (at >= queries * kDim) continue;
      const u32 query = at / kDim, column = at % kDim;
      const u32 row = query % block.tokens, head = query / block.tokens;
      const float value = task.stats == 0 ? mine[i] / work.total[query] : mine[i];
      out[row * task.heads * kDim + (task.q_head + head) * kDim + column] = value;
    }
    if (task.stats == 0) return;
    float* stats = reinterpret_cast<float*>(task.stats);
    for (u32 query = block.thread; query < queries; query += kThreads) {
      const u32 row = query % block.tokens, head = query / block.tokens;
      float* to = stats + (row * task.heads + task.q_head + head) * 2;
      to[0] = work.top[query];
      to[1] = work.total[query];
    }
  }
};

}  // namespace amk
