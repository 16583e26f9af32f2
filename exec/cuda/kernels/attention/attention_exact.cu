// SPDX-License-Identifier: Apache-2.0
// Attention in fp32 arithmetic on the ordinary cores: the reference on the GPU, and the way for
// shapes that the tensor-core kernels do not take. Tiles of 32 x 32; a row's 8 threads share its
// scores.
#include <algorithm>

#include "exec/cuda/kernels/attention/attention_form.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr int kTile = 32;  // queries, and keys, of a tile
constexpr int kLanes = 8;  // threads of a row
constexpr int kThreads = kTile * kLanes;
constexpr int kScores = kTile / kLanes;  // scores that a thread computes of its row

// One row longer than it needs to be in each direction that would collide in a bank.
template <int kDim>
using Rows = float[kTile][kDim + 1];
using Square = float[kTile][kTile + 1];

template <class T, int kDim>
__device__ void read_rows(const T* from, std::int64_t stride, int valid, int width,
                          Rows<kDim>& to) {
  for (int k = static_cast<int>(threadIdx.x); k < kTile * kDim; k += kThreads) {
    const int row = k / kDim, c = k % kDim;
    to[row][c] = row < valid && c < width ? widen(from[row * stride + c]) : 0.0F;
  }
}

template <int kDim>
__device__ __forceinline__ float dot(const float (&a)[kDim + 1], const float (&b)[kDim + 1]) {
  float sum = 0;
#pragma unroll 16
  for (int c = 0; c < kDim; ++c) sum += a[c] * b[c];
  return sum;
}

// sum[i] += sum over the tile of weight[k] * rows[k][lane + 8 i]
template <int kDim>
__device__ __forceinline__ void add_weighted(const float (&weight)[kTile + 1],
                                             const Rows<kDim>& rows, int lane,
                                             float (&sum)[kDim / kLanes]) {
#pragma unroll 4
  for (int k = 0; k < kTile; ++k) {
    const float w = weight[k];
#pragma unroll
    for (int i = 0; i < kDim / kLanes; ++i) sum[i] += w * rows[k][lane + kLanes * i];
  }
}

template <class T, int kDim>
__device__ __forceinline__ void write_row(const float (&sum)[kDim / kLanes], float factor, int lane,
                                          int width, T* to) {
#pragma unroll
  for (int i = 0; i < kDim / kLanes; ++i) {
    if (lane + kLanes * i < width) to[lane + kLanes * i] = narrow<T>(sum[i] * factor);
  }
}

template <int kDim>
__device__ __forceinline__ void merge_row(const float (&sum)[kDim / kLanes], bool first,
                                          float before, float now, int lane, int width, float* to) {
#pragma unroll
  for (int i = 0; i < kDim / kLanes; ++i) {
    const int c = lane + kLanes * i;
    if (c < width) to[c] = (first ? 0 : to[c] * before) + sum[i] * now;
  }
}

// Over the 8 threads of a row.
template <class Join>
__device__ __forceinline__ float over_row(float value) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    value = Join{}(value, __shfl_xor_sync(0xFFFFFFFFU, value, distance));
  }
  return value;
}

// Where a thread works: the widths of keys and values, the first row of its block's tile, its row
// in the tile, its place among the row's threads.
struct Place {
  int head_dim, values, first, row, lane;
};
__device__ __forceinline__ Place place_of(const AttentionShape& s, int begin) {
  const int thread = static_cast<int>(threadIdx.x);
  return {static_cast<int>(s.head_dim), static_cast<int>(s.values()),
          begin + static_cast<int>(blockIdx.x) * kTile, thread / kLanes, thread % kLanes};
}

// --- forward: a block per 32 queries -----------------------------------------
template <int kDim>
struct ForwardShared {
  Rows<kDim> q, k, v;
  Square p;
};

template <class T, int kDim>
__global__ void __launch_bounds__(kThreads) forward_kernel(ForwardCall<T> call, float scale) {
  auto& shared = *reinterpret_cast<ForwardShared<kDim>*>(dynamic_shared());
  const AttentionShape& s = call.part.shape;
  const Extent<false, true> extent(call.part);
  const auto [head_dim, values, q0, row, lane] = place_of(s, extent.query_begin);
  const Head<T> head = head_of<false>(call.part, call.qkv, call.kv, blockIdx.z, blockIdx.y,
                                      keys_of_head(s, static_cast<int>(blockIdx.y)));
  read_rows<T, kDim>(head.q + q0 * head.q_stride, head.q_stride, extent.query_end - q0, head_dim,
                     shared.q);
  const Scores scores(call.part, scale, blockIdx.z, blockIdx.y);
  auto [top, sum] = beginning<T>(call.part, blockIdx.y);
  float out[kDim / kLanes] = {};
  for (int k0 = extent.first_tile(q0, kTile); k0 < extent.keys_of(q0, kTile); k0 += kTile) {
    __syncthreads();
    read_rows<T, kDim>(head.k + k0 * head.k_stride, head.k_stride, extent.key_end - k0, head_dim,
                       shared.k);
    read_rows<T, kDim>(head.k + k0 * head.k_stride + head.to_value, head.k_stride,
                       extent.key_end - k0, values, shared.v);
    __syncthreads();
    float score[kScores], before = top;
#pragma unroll
    for (int j = 0; j < kScores; ++j) {
      const int c = lane + kLanes * j;
      score[j] = extent.sees(q0 + row, k0 + c)
                     ? scores.biased(scores.capped(dot<kDim>(shared.q[row], shared.k[c])), q0 + row,
                                     k0 + c)
                     : -INFINITY;
      top = fmaxf(top, score[j]);
    }
    top = over_row<Larger>(top);
    const float base = top == -INFINITY ? 0.0F : top;  // the row's window begins further on
    const float shrink = expf(before - base);
    float added = 0;
#pragma unroll
    for (int j = 0; j < kScores; ++j) {
      const float p = expf(score[j] - base);
      added += p;
      shared.p[row][lane + kLanes * j] = p * scores.factor(q0 + row, k0 + lane + kLanes * j);
    }
    sum = sum * shrink + over_row<Add>(added);
#pragma unroll
    for (int i = 0; i < kDim / kLanes; ++i) out[i] *= shrink;
    __syncwarp();  // a row's threads are of one warp
    add_weighted<kDim>(shared.p[row], shared.v, lane, out);
  }
  const bool here = q0 + row < extent.query_end, first = call.part.first;
  const std::int64_t token = blockIdx.z * s.sequence + q0 + row;
  float* lse = call.lse + blockIdx.y * s.tokens + token;
  const Shares shares = join(first, first || !here ? 0 : *lse, top, sum);
  __syncwarp();  // all threads of the row have read it
  if (!here) return;
  if (lane == 0) *lse = shares.lse;
  const std::int64_t to = (token * s.heads + blockIdx.y) * s.values();
  if (call.o != nullptr) {
    write_row<T, kDim>(out, shares.now, lane, values, call.o + to);
  } else {
    merge_row<kDim>(out, first, shares.before, shares.now, lane, values, call.sum + to);
  }
}

// --- backward: a block per 32 keys for dK and dV, then one per 32 queries for dQ ---
template <int kDim>
struct BackwardShared {
  Rows<kDim> q, g, k, v;  // g: dO
  Square p, ds;
  float lse[kTile], delta[kTile];
};

// The weight that multiplies the value, and dS = P (dP - delta), of the pair (query, key), whose
// rows are in shared memory; q0, k0: the tiles' first.
template <int kDim>
__device__ __forceinline__ void probability(const BackwardShared<kDim>& shared, int q0, int query,
                                            int k0, int key, bool seen, const Scores& scores,
                                            float& weight, float& ds) {
  weight = ds = 0;
  if (!seen) return;
  const float capped = scores.capped(dot<kDim>(shared.q[query], shared.k[key]));
  const float p = expf(scores.biased(capped, q0 + query, k0 + key) - shared.lse[query]);
  const float factor = scores.factor(q0 + query, k0 + key);
  weight = p * factor;
  ds = p * (dot<kDim>(shared.g[query], shared.v[key]) * factor - shared.delta[query]) *
       scores.steepness(capped);
}

template <class T, int kDim>
__device__ void read_queries(const BackwardCall<T>& call, const Head<T>& head, std::int64_t number,
                             int q0, BackwardShared<kDim>& shared) {
  const AttentionShape& s = call.part.shape;
  const int valid = static_cast<int>(call.part.query_end) - q0;
  const std::int64_t token = blockIdx.z * s.sequence + q0;
  read_rows<T, kDim>(head.q + q0 * head.q_stride, head.q_stride, valid,
                     static_cast<int>(s.head_dim), shared.q);
  read_rows<T, kDim>(call.d_o + (token * s.heads + number) * s.values(), s.heads * s.values(),
                     valid, static_cast<int>(s.values()), shared.g);
  const int i = static_cast<int>(threadIdx.x);
  if (i < kTile && i < valid) {
    shared.lse[i] = call.lse[number * s.tokens + token + i];
    shared.delta[i] = call.delta[number * s.tokens + token + i];
  }
}

template <class T, int kDim>
__device__ void read_keys(const BackwardCall<T>& call, const Head<T>& head, int k0,
                          BackwardShared<kDim>& shared) {
  const AttentionShape& s = call.part.shape;
  const int valid = static_cast<int>(call.part.key_end) - k0;
  read_rows<T, kDim>(head.k + k0 * head.k_stride, head.k_stride, valid,
                     static_cast<int>(s.head_dim), shared.k);
  read_rows<T, kDim>(head.k + k0 * head.k_stride + head.to_value, head.k_stride, valid,
                     static_cast<int>(s.values()), shared.v);
}

template <class T, int kDim>
__global__ void __launch_bounds__(kThreads) keys_kernel(BackwardCall<T> call, float scale) {
  auto& shared = *reinterpret_cast<BackwardShared<kDim>*>(dynamic_shared());
  const AttentionShape& s = call.part.shape;
  const Extent<false, true> extent(call.part);
  const auto [head_dim, values, k0, row, lane] = place_of(s, extent.key_begin);
  const std::int64_t group = s.heads / s.kv_heads;
  const auto head_at = [&](std::int64_t number) {
    return head_of<false>(call.part, call.qkv, call.kv, blockIdx.z, number,
                          static_cast<int>(blockIdx.y));
  };
  float dk[kDim / kLanes] = {}, dv[kDim / kLanes] = {};
  read_keys<T, kDim>(call, head_at(blockIdx.y * group), k0, shared);
  const int first = extent.causal ? k0 : extent.query_begin;
  for (std::int64_t number = blockIdx.y * group; number < (blockIdx.y + 1) * group; ++number) {
    const Scores scores(call.part, scale, blockIdx.z, number);
    for (int q0 = first; q0 < extent.queries_of(k0 + kTile); q0 += kTile) {
      __syncthreads();
      read_queries<T, kDim>(call, head_at(number), number, q0, shared);
      __syncthreads();
#pragma unroll
      for (int j = 0; j < kScores; ++j) {
        const int c = lane + kLanes * j;
        const bool seen = extent.sees(q0 + c, k0 + row) && q0 + c < extent.query_end;
        probability<kDim>(shared, q0, c, k0, row, seen, scores, shared.p[row][c],
                          shared.ds[row][c]);
      }
      __syncwarp();
      add_weighted<kDim>(shared.p[row], shared.g, lane, dv);
      add_weighted<kDim>(shared.ds[row], shared.q, lane, dk);
    }
  }
  if (k0 + row >= extent.key_end) return;
  const std::int64_t token = blockIdx.z * s.sequence + k0 + row, to_k = blockIdx.y * s.head_dim;
  const std::int64_t to_v = s.kv_heads * s.head_dim + blockIdx.y * s.values();
  if (call.dqkv != nullptr) {
    T* to = call.dqkv + token * s.columns() + s.heads * s.head_dim;
    write_row<T, kDim>(dk, scale, lane, head_dim, to + to_k);
    write_row<T, kDim>(dv, 1.0F, lane, values, to + to_v);
  } else {
    float* to = call.dkv + token * s.kv_columns();
    merge_row<kDim>(dk, false, 1, scale, lane, head_dim, to + to_k);
    merge_row<kDim>(dv, false, 1, 1, lane, values, to + to_v);
  }
}

template <class T, int kDim>
__global__ void __launch_bounds__(kThreads) queries_kernel(BackwardCall<T> call, float scale) {
  auto& shared = *reinterpret_cast<BackwardShared<kDim>*>(dynamic_shared());
  const AttentionShape& s = call.part.shape;
  const Extent<false, true> extent(call.part);
  const auto [head_dim, values, q0, row, lane] = place_of(s, extent.query_begin);
  const Head<T> head = head_of<false>(call.part, call.qkv, call.kv, blockIdx.z, blockIdx.y,
                                      keys_of_head(s, static_cast<int>(blockIdx.y)));
  float dq[kDim / kLanes] = {};
  read_queries<T, kDim>(call, head, blockIdx.y, q0, shared);
  const Scores scores(call.part, scale, blockIdx.z, blockIdx.y);
  for (int k0 = extent.first_tile(q0, kTile); k0 < extent.keys_of(q0, kTile); k0 += kTile) {
    __syncthreads();
    read_keys<T, kDim>(call, head, k0, shared);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kScores; ++j) {
      const int c = lane + kLanes * j;
      const bool seen = extent.sees(q0 + row, k0 + c) && q0 + row < extent.query_end;
      float p;
      probability<kDim>(shared, q0, row, k0, c, seen, scores, p, shared.ds[row][c]);
    }
    __syncwarp();
    add_weighted<kDim>(shared.ds[row], shared.k, lane, dq);
  }
  if (q0 + row >= extent.query_end) return;
  const std::int64_t token = blockIdx.z * s.sequence + q0 + row;
  if (call.dqkv != nullptr) {
    write_row<T, kDim>(dq, scale, lane, head_dim,
                       call.dqkv + token * s.columns() + blockIdx.y * s.head_dim);
  } else {
    merge_row<kDim>(dq, false, 1, scale, lane, head_dim,
                    call.dq + (token * s.heads + blockIdx.y) * s.head_dim);
  }
}

static_assert(sizeof(BackwardShared<256>) == kSharedOfWideHeads &&
              sizeof(ForwardShared<256>) <= kSharedOfWideHeads);

// Keys and values are padded alike.
template <class F>
int with_dim(const AttentionShape& s, F f) {
  const std::int64_t width = std::max(s.head_dim, s.values());
  if (width <= 64) return f(std::integral_constant<int, 64>{});
  if (width <= 128) return f(std::integral_constant<int, 128>{});
  return f(std::integral_constant<int, 256>{});
}

}  // namespace

template <class T>
int exact_attention(Stream stream, const ForwardCall<T>& call) {
  const AttentionShape& s = call.part.shape;
  return with_dim(s, [&](auto dim) {
    constexpr int kDim = decltype(dim)::value;
    return launch(forward_kernel<T, kDim>, query_grid(call, kTile), kThreads,
                  sizeof(ForwardShared<kDim>), stream, call, scale_of(s));
  });
}

template <class T>
int exact_attention_backward(Stream stream, const BackwardCall<T>& call) {
  const AttentionShape& s = call.part.shape;
  return with_dim(s, [&](auto dim) {
    constexpr int kDim = decltype(dim)::value;
    const int status = launch(keys_kernel<T, kDim>, key_grid(call, kTile), kThreads,
                              sizeof(BackwardShared<kDim>), stream, call, scale_of(s));
    if (status != 0) return status;
    return launch(queries_kernel<T, kDim>, query_grid(call, kTile), kThreads,
                  sizeof(BackwardShared<kDim>), stream, call, scale_of(s));
  });
}

template int exact_attention(Stream, const ForwardCall<float>&);
template int exact_attention(Stream, const ForwardCall<Bf16>&);
template int exact_attention(Stream, const ForwardCall<Fp16>&);
template int exact_attention_backward(Stream, const BackwardCall<float>&);
template int exact_attention_backward(Stream, const BackwardCall<Bf16>&);
template int exact_attention_backward(Stream, const BackwardCall<Fp16>&);

}  // namespace rehearse::exec::cuda
