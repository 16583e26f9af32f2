// SPDX-License-Identifier: Apache-2.0
// Lookup of token rows and the gradient of the table, summed in token order whatever the GPU does.
#include "exec/cuda/kernels/embedding.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr int kThreads = 256;
// Rows whose loads are in flight together: of one id, of one position.
constexpr int kTogether = 16, kSamples = 8;

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

constexpr int kPlaces = 16;  // of the order, to a block
constexpr int kStaged = 128;
static_assert(kPlaces + kTogether <= kStaged);

// A block per kPlaces of the order (x) and stretch of columns (y) adds the rows of those ids whose
// first token lies there, in the order of the tokens, wherever the last one lies.
template <class T, int V>
__global__ void __launch_bounds__(kStaged)
    embed_backward_kernel(int tokens, std::int64_t h, const std::int32_t* __restrict__ ids,
                          const T* __restrict__ dy, std::int32_t first, std::int32_t rows,
                          const std::int32_t* __restrict__ order, float* __restrict__ d_table,
                          std::int64_t frozen, float scale) {
  __shared__ std::int32_t token[kStaged], row[kStaged];  // of the places from `staged` on
  const int begin = static_cast<int>(blockIdx.x) * kPlaces;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * kStaged + threadIdx.x) * V;
  const bool here = column < h;
  const auto row_at = [&](std::int32_t which) { return row_of(ids[which], first, rows, frozen); };
  int staged = begin;
  const auto stage = [&] {
    const int place = staged + static_cast<int>(threadIdx.x);
    const std::int32_t which = place < tokens ? order[place] : 0;
    token[threadIdx.x] = which;
    row[threadIdx.x] = place < tokens ? row_at(which) : rows;
    __syncthreads();
  };
  stage();
  int place = begin;
  if (begin > 0) {  // what began before is another block's
    const std::int32_t before = row_at(order[begin - 1]);
    while (place < begin + kPlaces && row[place - begin] == before) ++place;
  }
  while (place < begin + kPlaces) {
    const std::int32_t current = row[place - staged];
    if (current == rows) return;  // and so are all that follow
    float sum[V] = {};
    if (here) load(d_table + current * h + column, sum);
    for (int met = kTogether; met == kTogether;) {
      if (place + kTogether > staged + kStaged) {
        __syncthreads();
        staged = place;
        stage();
      }
      Raw<T, V> raw[kTogether];
      met = 0;
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        if (met < j || row[place - staged + j] != current) continue;
        if (here) {
          raw[j] = load_raw<T, V>(dy + token[place - staged + j] * h + column);
        }
        met = j + 1;
      }
#pragma unroll
      for (int j = 0; j < kTogether; ++j) {
        if (j >= met || !here) continue;
        float v[V];
        widen_all<T>(raw[j], v);
#pragma unroll
        for (int i = 0; i < V; ++i) sum[i] += v[i] * scale;
      }
      place += met;
    }
    if (here) store(d_table + current * h + column, sum);
  }
}

// One thread per V columns of a position; it walks the samples.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    positions_kernel(std::int64_t tokens, std::int64_t h, std::int64_t sequence, std::int64_t first,
                     const T* __restrict__ dy, float* __restrict__ d_positions) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * V;
  if (i >= sequence * h) return;
  // The first token at this position.
  const std::int64_t begin = ((i / h - first) % sequence + sequence) % sequence;
  float sum[V];
  load(d_positions + i, sum);
  const T* from = dy + begin * h + i % h;
  for (std::int64_t token = begin; token < tokens; token += kSamples * sequence) {
    Raw<T, V> raw[kSamples];
#pragma unroll
    for (int k = 0; k < kSamples; ++k) {
      if (token + k * sequence < tokens) {
        raw[k] = load_raw<T, V>(from + k * sequence * h);
      }
    }
#pragma unroll
    for (int k = 0; k < kSamples; ++k) {
      if (token + k * sequence >= tokens) continue;
      float v[V];
      widen_all<T>(raw[k], v);
#pragma unroll
      for (int j = 0; j < V; ++j) sum[j] += v[j];
    }
    from += kSamples * sequence * h;
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

int embed_backward(Stream stream, Type type, std::int64_t tokens, std::int64_t h,
                   const std::int32_t* ids, const void* dy, const VocabularyShape& shape,
                   const std::int32_t* order, float* d_table) {
  if (tokens > INT32_MAX / 2 || shape.columns > INT32_MAX / 2) return kInvalidValue;
  return with_width(type, h, {dy, d_table}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return launch(embed_backward_kernel<T, V>,
                  dim3(blocks(tokens, kPlaces), blocks(h, kStaged * V)), kStaged, 0, stream,
                  static_cast<int>(tokens), h, ids, static_cast<const T*>(dy),
                  static_cast<std::int32_t>(shape.first), static_cast<std::int32_t>(shape.columns),
                  order, d_table, shape.frozen, shape.scale);
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
