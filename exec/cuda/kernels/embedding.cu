// SPDX-License-Identifier: Apache-2.0
// Lookup of token rows and the gradient of the table, summed in token order whatever the GPU does.
#include "exec/cuda/kernels/device.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBatch = 8;  // rows whose loads are in flight together

template <class T, int V>
__global__ void embed_kernel(std::int64_t tokens, std::int64_t h,
                             const std::int32_t* __restrict__ ids, const T* __restrict__ table,
                             std::int64_t first, std::int64_t rows, float scale,
                             T* __restrict__ out) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * V;
  if (i >= tokens * h) return;
  const std::int64_t row = ids[i / h] - first;
  float v[V] = {};
  if (row >= 0 && row < rows) load(table + row * h + i % h, v);
#pragma unroll
  for (int k = 0; k < V; ++k) v[k] *= scale;
  store(out + i, v);
}

// A token's place is the number of tokens before it: those with a smaller id, and equal ones with a
// smaller position. tokens^2 comparisons from shared memory: cheap up to some 64k tokens.
__global__ void __launch_bounds__(kThreads)
    sort_tokens_kernel(int tokens, const std::int32_t* __restrict__ ids,
                       std::int32_t* __restrict__ order) {
  __shared__ std::int32_t others[kThreads];
  const int here = static_cast<int>(threadIdx.x);
  const int mine = static_cast<int>(blockIdx.x) * kThreads + here;
  const std::int32_t id = mine < tokens ? ids[mine] : 0;
  int place = 0;
  for (int begin = 0; begin < tokens; begin += kThreads) {
    const int count = tokens - begin < kThreads ? tokens - begin : kThreads;
    __syncthreads();
    if (here < count) others[here] = ids[begin + here];
    __syncthreads();
    // Whole tiles lie before or after this block's own.
    if (begin / kThreads < static_cast<int>(blockIdx.x)) {
#pragma unroll 16
      for (int k = 0; k < count; ++k) place += others[k] <= id;
    } else if (begin / kThreads > static_cast<int>(blockIdx.x)) {
#pragma unroll 16
      for (int k = 0; k < count; ++k) place += others[k] < id;
    } else {
      for (int k = 0; k < count; ++k) place += others[k] < id || (others[k] == id && k < here);
    }
  }
  if (mine < tokens) order[place] = mine;
}

// One block per place in the order (x) and stretch of columns (y); the first of equal ids adds them
// all, the others leave.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    embed_backward_kernel(int tokens, std::int64_t h, const std::int32_t* __restrict__ ids,
                          const T* __restrict__ dy, std::int64_t first, std::int64_t rows,
                          const std::int32_t* __restrict__ order, float* __restrict__ d_table,
                          std::int64_t frozen, float scale) {
  const int begin = static_cast<int>(blockIdx.x);
  const std::int32_t id = ids[order[begin]];
  const std::int64_t row = id - first;
  if (row < 0 || row >= rows || id == frozen) return;
  if (begin > 0 && ids[order[begin - 1]] == id) return;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x) * V;
  if (column >= h) return;
  float sum[V];
  load(d_table + row * h + column, sum);
  for (int k = begin; k < tokens; k += kBatch) {
    float v[kBatch][V];
    int here = 0;
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      if (here < j || k + j >= tokens) continue;  // an id before was another
      const std::int32_t token = order[k + j];
      if (ids[token] != id) continue;
      load(dy + token * h + column, v[j]);
      here = j + 1;
    }
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      if (j >= here) continue;
#pragma unroll
      for (int i = 0; i < V; ++i) sum[i] += v[j][i] * scale;
    }
    if (here < kBatch) break;
  }
  store(d_table + row * h + column, sum);
}

// One thread per V columns of a position; it walks the samples.
template <class T, int V>
__global__ void positions_kernel(std::int64_t tokens, std::int64_t h, std::int64_t sequence,
                                 std::int64_t first, const T* __restrict__ dy,
                                 float* __restrict__ d_positions) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * V;
  if (i >= sequence * h) return;
  // The first token at this position.
  const std::int64_t begin = ((i / h - first) % sequence + sequence) % sequence;
  float sum[V], v[V];
  load(d_positions + i, sum);
  for (std::int64_t token = begin; token < tokens; token += sequence) {
    load(dy + token * h + i % h, v);
#pragma unroll
    for (int k = 0; k < V; ++k) sum[k] += v[k];
  }
  store(d_positions + i, sum);
}

}  // namespace

int embed(Stream stream, Type type, std::int64_t tokens, std::int64_t h, const std::int32_t* ids,
          const void* table, const VocabularyShape& shape, void* out) {
  return with_width(type, h, {table, out}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return launch(embed_kernel<T, V>, dim3(blocks(tokens * h, kThreads * V)), kThreads, 0, stream,
                  tokens, h, ids, static_cast<const T*>(table), shape.first, shape.columns,
                  shape.scale, static_cast<T*>(out));
  });
}

int sort_tokens(Stream stream, std::int64_t tokens, const std::int32_t* ids, std::int32_t* order) {
  if (tokens > INT32_MAX / 2) return kInvalidValue;
  return launch(sort_tokens_kernel, dim3(blocks(tokens, kThreads)), kThreads, 0, stream,
                static_cast<int>(tokens), ids, order);
}

int embed_backward(Stream stream, Type type, std::int64_t tokens, std::int64_t h,
                   const std::int32_t* ids, const void* dy, const VocabularyShape& shape,
                   const std::int32_t* order, float* d_table) {
  if (tokens > INT32_MAX / 2) return kInvalidValue;
  return with_width(type, h, {dy, d_table}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return launch(embed_backward_kernel<T, V>, dim3(blocks(tokens, 1), blocks(h, kThreads * V)),
                  kThreads, 0, stream, static_cast<int>(tokens), h, ids, static_cast<const T*>(dy),
                  shape.first, shape.columns, order, d_table, shape.frozen, shape.scale);
  });
}

int position_gradient(Stream stream, Type type, std::int64_t tokens, std::int64_t h,
                      std::int64_t first, std::int64_t sequence, const void* dy,
                      float* d_positions) {
  return with_width(type, h, {dy, d_positions}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return launch(positions_kernel<T, V>, dim3(blocks(sequence * h, kThreads * V)), kThreads, 0,
                  stream, tokens, h, sequence, first, static_cast<const T*>(dy), d_positions);
  });
}

}  // namespace rehearse::exec::cuda
