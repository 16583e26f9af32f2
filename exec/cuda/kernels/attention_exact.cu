// Attention in fp32 arithmetic on the ordinary cores: the reference on the GPU, and the way for
// shapes that the tensor-core kernels do not take. Tiles of 32 x 32; a row's 8 threads share its
// scores.
#include "exec/cuda/kernels/attention.cuh"

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
__device__ void read_rows(const T* from, std::int64_t stride, int valid, int head_dim,
                          Rows<kDim>& to) {
  for (int k = static_cast<int>(threadIdx.x); k < kTile * kDim; k += kThreads) {
    const int row = k / kDim, c = k % kDim;
    to[row][c] = row < valid && c < head_dim ? widen(from[row * stride + c]) : 0.0F;
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
                                          int head_dim, T* to) {
#pragma unroll
  for (int i = 0; i < kDim / kLanes; ++i) {
    if (lane + kLanes * i < head_dim) to[lane + kLanes * i] = narrow<T>(sum[i] * factor);
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

// --- forward: a block per 32 queries -----------------------------------------
template <int kDim>
struct ForwardShared {
  Rows<kDim> q, k, v;
  Square p;
};

template <class T, int kDim>
__global__ void __launch_bounds__(kThreads)
    forward_kernel(AttentionShape s, float scale, const T* __restrict__ qkv, T* __restrict__ o,
                   float* __restrict__ lse) {
  auto& shared = *reinterpret_cast<ForwardShared<kDim>*>(dynamic_shared());
  const int sequence = static_cast<int>(s.sequence), head_dim = static_cast<int>(s.head_dim);
  const int q0 = static_cast<int>(blockIdx.x) * kTile;
  const int row = static_cast<int>(threadIdx.x) / kLanes,
            lane = static_cast<int>(threadIdx.x) % kLanes;
  const Head<T> head = head_of(s, qkv, blockIdx.z, blockIdx.y);
  read_rows<T, kDim>(head.q + q0 * head.stride, head.stride, sequence - q0, head_dim, shared.q);
  float top = -INFINITY, sum = 0, out[kDim / kLanes] = {};
  for (int k0 = 0; k0 <= q0; k0 += kTile) {
    __syncthreads();
    read_rows<T, kDim>(head.k + k0 * head.stride, head.stride, sequence - k0, head_dim, shared.k);
    read_rows<T, kDim>(head.v + k0 * head.stride, head.stride, sequence - k0, head_dim, shared.v);
    __syncthreads();
    float score[kScores], before = top;
#pragma unroll
    for (int j = 0; j < kScores; ++j) {
      const int c = lane + kLanes * j;
      score[j] = k0 + c <= q0 + row ? dot<kDim>(shared.q[row], shared.k[c]) * scale : -INFINITY;
      top = fmaxf(top, score[j]);
    }
    top = over_row<Larger>(top);  // finite: a row sees at least key k0
    const float shrink = expf(before - top);
    float added = 0;
#pragma unroll
    for (int j = 0; j < kScores; ++j) {
      const float p = expf(score[j] - top);
      added += p;
      shared.p[row][lane + kLanes * j] = p;
    }
    sum = sum * shrink + over_row<Add>(added);
#pragma unroll
    for (int i = 0; i < kDim / kLanes; ++i) out[i] *= shrink;
    __syncwarp();  // a row's threads are of one warp
    add_weighted<kDim>(shared.p[row], shared.v, lane, out);
  }
  if (q0 + row >= sequence) return;
  const std::int64_t token = blockIdx.z * s.sequence + q0 + row;
  write_row<T, kDim>(out, 1.0F / sum, lane, head_dim,
                     o + (token * s.heads + blockIdx.y) * s.head_dim);
  if (lane == 0) lse[blockIdx.y * s.tokens + token] = top + logf(sum);
}

// --- backward: a block per 32 keys for dK and dV, then one per 32 queries for dQ ---
template <int kDim>
struct BackwardShared {
  Rows<kDim> q, g, k, v;  // g: dO
  Square p, ds;
  float lse[kTile], delta[kTile];
};

// p and dS = p (dP - delta) of the pair (query, key), whose rows are in shared memory.
template <int kDim>
__device__ __forceinline__ void probability(const BackwardShared<kDim>& shared, int query, int key,
                                            bool seen, float scale, float& p, float& ds) {
  p = ds = 0;
  if (!seen) return;
  p = expf(dot<kDim>(shared.q[query], shared.k[key]) * scale - shared.lse[query]);
  ds = p * (dot<kDim>(shared.g[query], shared.v[key]) - shared.delta[query]);
}

template <class T, int kDim>
__device__ void read_queries(const AttentionShape& s, const Head<T>& head, const T* d_o,
                             const float* lse, const float* delta, std::int64_t number, int q0,
                             BackwardShared<kDim>& shared) {
  const int valid = static_cast<int>(s.sequence) - q0, head_dim = static_cast<int>(s.head_dim);
  const std::int64_t token = blockIdx.z * s.sequence + q0;
  read_rows<T, kDim>(head.q + q0 * head.stride, head.stride, valid, head_dim, shared.q);
  read_rows<T, kDim>(d_o + (token * s.heads + number) * s.head_dim, s.heads * s.head_dim, valid,
                     head_dim, shared.g);
  const int i = static_cast<int>(threadIdx.x);
  if (i < kTile && i < valid) {
    shared.lse[i] = lse[number * s.tokens + token + i];
    shared.delta[i] = delta[number * s.tokens + token + i];
  }
}

template <class T, int kDim>
__device__ void read_keys(const AttentionShape& s, const Head<T>& head, int k0,
                          BackwardShared<kDim>& shared) {
  const int valid = static_cast<int>(s.sequence) - k0, head_dim = static_cast<int>(s.head_dim);
  read_rows<T, kDim>(head.k + k0 * head.stride, head.stride, valid, head_dim, shared.k);
  read_rows<T, kDim>(head.v + k0 * head.stride, head.stride, valid, head_dim, shared.v);
}

template <class T, int kDim>
__global__ void __launch_bounds__(kThreads)
    keys_kernel(AttentionShape s, float scale, const T* __restrict__ d_o, const T* __restrict__ qkv,
                const float* __restrict__ lse, const float* __restrict__ delta,
                T* __restrict__ dqkv) {
  auto& shared = *reinterpret_cast<BackwardShared<kDim>*>(dynamic_shared());
  const int sequence = static_cast<int>(s.sequence);
  const int k0 = static_cast<int>(blockIdx.x) * kTile;
  const int row = static_cast<int>(threadIdx.x) / kLanes,
            lane = static_cast<int>(threadIdx.x) % kLanes;
  const std::int64_t group = s.heads / s.kv_heads;
  float dk[kDim / kLanes] = {}, dv[kDim / kLanes] = {};
  read_keys<T, kDim>(s, head_of(s, qkv, blockIdx.z, blockIdx.y * group), k0, shared);
  for (std::int64_t number = blockIdx.y * group; number < (blockIdx.y + 1) * group; ++number) {
    const Head<T> head = head_of(s, qkv, blockIdx.z, number);
    for (int q0 = k0; q0 < sequence; q0 += kTile) {
      __syncthreads();
      read_queries<T, kDim>(s, head, d_o, lse, delta, number, q0, shared);
      __syncthreads();
#pragma unroll
      for (int j = 0; j < kScores; ++j) {
        const int c = lane + kLanes * j;
        probability<kDim>(shared, c, row, k0 + row <= q0 + c && q0 + c < sequence, scale,
                          shared.p[row][c], shared.ds[row][c]);
      }
      __syncwarp();
      add_weighted<kDim>(shared.p[row], shared.g, lane, dv);
      add_weighted<kDim>(shared.ds[row], shared.q, lane, dk);
    }
  }
  if (k0 + row >= sequence) return;
  const std::int64_t token = blockIdx.z * s.sequence + k0 + row;
  T* to = dqkv + token * s.columns() + (s.heads + blockIdx.y) * s.head_dim;
  write_row<T, kDim>(dk, scale, lane, static_cast<int>(s.head_dim), to);
  write_row<T, kDim>(dv, 1.0F, lane, static_cast<int>(s.head_dim), to + s.kv_heads * s.head_dim);
}

template <class T, int kDim>
__global__ void __launch_bounds__(kThreads)
    queries_kernel(AttentionShape s, float scale, const T* __restrict__ d_o,
                   const T* __restrict__ qkv, const float* __restrict__ lse,
                   const float* __restrict__ delta, T* __restrict__ dqkv) {
  auto& shared = *reinterpret_cast<BackwardShared<kDim>*>(dynamic_shared());
  const int sequence = static_cast<int>(s.sequence);
  const int q0 = static_cast<int>(blockIdx.x) * kTile;
  const int row = static_cast<int>(threadIdx.x) / kLanes,
            lane = static_cast<int>(threadIdx.x) % kLanes;
  const Head<T> head = head_of(s, qkv, blockIdx.z, blockIdx.y);
  float dq[kDim / kLanes] = {};
  read_queries<T, kDim>(s, head, d_o, lse, delta, blockIdx.y, q0, shared);
  for (int k0 = 0; k0 <= q0; k0 += kTile) {
    __syncthreads();
    read_keys<T, kDim>(s, head, k0, shared);
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kScores; ++j) {
      const int c = lane + kLanes * j;
      float p;
      probability<kDim>(shared, row, c, k0 + c <= q0 + row && q0 + row < sequence, scale, p,
                        shared.ds[row][c]);
    }
    __syncwarp();
    add_weighted<kDim>(shared.ds[row], shared.k, lane, dq);
  }
  if (q0 + row >= sequence) return;
  const std::int64_t token = blockIdx.z * s.sequence + q0 + row;
  write_row<T, kDim>(dq, scale, lane, static_cast<int>(s.head_dim),
                     dqkv + token * s.columns() + blockIdx.y * s.head_dim);
}

template <class F>
int with_dim(std::int64_t head_dim, F f) {
  if (head_dim <= 64) return f(std::integral_constant<int, 64>{});
  if (head_dim <= 128) return f(std::integral_constant<int, 128>{});
  return f(std::integral_constant<int, 256>{});
}

float scale_of(const AttentionShape& s) {
  return 1.0F / sqrtf(static_cast<float>(s.head_dim));
}

}  // namespace

template <class T>
int exact_attention(Stream stream, const AttentionShape& s, const T* qkv, T* o, float* lse) {
  return with_dim(s.head_dim, [&](auto dim) {
    constexpr int kDim = decltype(dim)::value;
    return launch(forward_kernel<T, kDim>, attention_grid(s, s.heads, kTile), kThreads,
                  sizeof(ForwardShared<kDim>), stream, s, scale_of(s), qkv, o, lse);
  });
}

template <class T>
int exact_attention_backward(Stream stream, const AttentionShape& s, const T* d_o, const T* qkv,
                             const float* lse, const float* delta, T* dqkv) {
  return with_dim(s.head_dim, [&](auto dim) {
    constexpr int kDim = decltype(dim)::value;
    const int status =
        launch(keys_kernel<T, kDim>, attention_grid(s, s.kv_heads, kTile), kThreads,
               sizeof(BackwardShared<kDim>), stream, s, scale_of(s), d_o, qkv, lse, delta, dqkv);
    if (status != 0) return status;
    return launch(queries_kernel<T, kDim>, attention_grid(s, s.heads, kTile), kThreads,
                  sizeof(BackwardShared<kDim>), stream, s, scale_of(s), d_o, qkv, lse, delta, dqkv);
  });
}

template int exact_attention(Stream, const AttentionShape&, const float*, float*, float*);
template int exact_attention(Stream, const AttentionShape&, const Bf16*, Bf16*, float*);
template int exact_attention_backward(Stream, const AttentionShape&, const float*, const float*,
                                      const float*, const float*, float*);
template int exact_attention_backward(Stream, const AttentionShape&, const Bf16*, const Bf16*,
                                      const float*, const float*, Bf16*);

}  // namespace rehearse::exec::cuda
