// SPDX-License-Identifier: Apache-2.0
// Cross-entropy over rows of logits, which their gradient overwrites: one block per row. A row that
// fits is kept in shared memory and read once (two blocks of an H100 processor, each with a row of
// GPT-2's); a longer one is read twice.
#include "exec/cuda/kernels/ptx.cuh"
#include "schedules/base/kept_row.h"

namespace rehearse::exec::cuda {
namespace {

constexpr int kThreads = 512;

// Calls f(column, value[V]) for this thread's share of the first `valid` columns; what lies beyond
// them reads as -infinity. REQUIRES: V divides `columns`, or is 1.
template <class T, int V, class F>
__device__ __forceinline__ void for_columns(const T* row, std::int64_t valid, F f) {
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * V; c < valid; c += kThreads * V) {
    float v[V];
    load(row + c, v);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      if (c + i >= valid) v[i] = -INFINITY;
    }
    f(c, v);
  }
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    row_maxima_kernel(std::int64_t columns, std::int64_t valid, const T* __restrict__ logits,
                      float* __restrict__ maxima) {
  __shared__ float room[kWarp];
  float top = -INFINITY;
  for_columns<T, V>(logits + blockIdx.x * columns, valid, [&](std::int64_t, const float(&v)[V]) {
#pragma unroll
    for (int i = 0; i < V; ++i) top = fmaxf(top, v[i]);
  });
  top = over_block<Larger>(top, room);
  if (threadIdx.x == 0) maxima[blockIdx.x] = top;
}

// sums(rows, 2) of one row, by its first thread
template <class T>
__device__ __forceinline__ void store_sums(float sum, const T* logits, std::int32_t target,
                                           std::int64_t first, std::int64_t valid, float* sums) {
  if (threadIdx.x != 0) return;
  const std::int64_t column = target - first;
  sums[0] = sum;
  sums[1] = column >= 0 && column < valid ? widen(logits[column]) : 0.0F;
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    row_sums_kernel(std::int64_t columns, std::int64_t valid, std::int64_t first,
                    const T* __restrict__ logits, const float* __restrict__ maxima,
                    const std::int32_t* __restrict__ targets, float* __restrict__ sums) {
  __shared__ float room[kWarp];
  const std::int64_t row = blockIdx.x;
  const float top = maxima[row];
  float sum = 0;
  for_columns<T, V>(logits + row * columns, valid, [&](std::int64_t, const float(&v)[V]) {
#pragma unroll
    for (int i = 0; i < V; ++i) sum += exponential<T>(v[i] - top);
  });
  sum = over_block<Add>(sum, room);
  store_sums(sum, logits + row * columns, targets[row], first, valid, sums + 2 * row);
}

// The gradient: scale (softmax - one at the target), zeros beyond `valid`, times 1 - (logit /
// cap)^2 where the logits are capped: inverse_cap is 0 where not. `to` may be `logits`.
template <class T, int V>
__device__ __forceinline__ void store_gradient(const T* logits, std::int64_t columns,
                                               std::int64_t valid, std::int64_t target, float top,
                                               float sum, float scale, float inverse_cap, T* to) {
  const float factor = scale * (1.0F / sum);
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * V; c < columns;
       c += kThreads * V) {
    float v[V];
    load(logits + c, v);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float capped = v[i] * inverse_cap;
      v[i] = c + i < valid ? exponential<T>(v[i] - top) * factor : 0.0F;
      if (c + i == target && target < valid) v[i] -= scale;
      if (inverse_cap > 0 && c + i < valid) v[i] *= 1.0F - capped * capped;
    }
    store(to + c, v);
  }
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    gradient_kernel(std::int64_t columns, std::int64_t valid, std::int64_t first,
                    const float* __restrict__ maxima, const float* __restrict__ sums,
                    const std::int32_t* __restrict__ targets, float scale, float inverse_cap,
                    T* logits) {
  const std::int64_t row = blockIdx.x;
  T* at = logits + row * columns;
  store_gradient<T, V>(at, columns, valid, targets[row] - first, maxima[row], sums[2 * row], scale,
                       inverse_cap, at);
}

// Maximum and sum of exponentials of what was seen so far (Milakov & Gimelshein 2018).
struct Running {
  float top, sum;
};
template <class T>
__device__ __forceinline__ Running join(Running a, Running b) {
  const float top = fmaxf(a.top, b.top);
  if (top == -INFINITY) return {top, 0.0F};
  return {top, a.sum * exponential<T>(a.top - top) + b.sum * exponential<T>(b.top - top)};
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_kernel(std::int64_t columns, std::int64_t valid,
                         const std::int32_t* __restrict__ targets, float scale, float inverse_cap,
                         float* __restrict__ maxima, float* __restrict__ sums, T* logits) {
  __shared__ Running room[kThreads / kWarp];
  const std::int64_t row = blockIdx.x;
  T* at = logits + row * columns;
  Running all{-INFINITY, 0.0F};
  for_columns<T, V>(at, valid, [&](std::int64_t, const float(&v)[V]) {
    float top = v[0], sum = 0;
#pragma unroll
    for (int i = 1; i < V; ++i) top = fmaxf(top, v[i]);
    top = fmaxf(top, all.top);
#pragma unroll
    for (int i = 0; i < V; ++i) sum += exponential<T>(v[i] - top);
    all = {top, all.sum * exponential<T>(all.top - top) + sum};
  });
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    all = join<T>(all, {__shfl_xor_sync(0xFFFFFFFFU, all.top, distance),
                        __shfl_xor_sync(0xFFFFFFFFU, all.sum, distance)});
  }
  if (threadIdx.x % kWarp == 0) room[threadIdx.x / kWarp] = all;
  __syncthreads();
  all = room[0];
  for (int k = 1; k < kThreads / kWarp; ++k) all = join<T>(all, room[k]);
  if (threadIdx.x == 0) maxima[row] = all.top;
  store_sums(all.sum, at, targets[row], 0, valid, sums + 2 * row);
  __syncthreads();  // the target's logit is read before it is overwritten
  store_gradient<T, V>(at, columns, valid, targets[row], all.top, all.sum, scale, inverse_cap, at);
}

// The same of a row that shared memory holds: all of its copies are started at once, and a thread
// meets what it copied itself. Dynamic shared memory: the row, then what over_block wants.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    kept_row_kernel(std::int64_t columns, std::int64_t valid,
                    const std::int32_t* __restrict__ targets, float scale, float inverse_cap,
                    float* __restrict__ maxima, float* __restrict__ sums, T* logits) {
  const std::int64_t row = blockIdx.x;
  T* at = logits + row * columns;
  T* kept = reinterpret_cast<T*>(dynamic_shared());
  float* room = reinterpret_cast<float*>(kept + columns);
  const Shared to = shared_address(kept);
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * V; c < columns;
       c += kThreads * V) {
    start_copy(to + static_cast<Shared>(c * static_cast<std::int64_t>(sizeof(T))), at + c, true);
  }
  end_group();
  wait_groups<0>();
  float top = -INFINITY, sum = 0;
  for_columns<T, V>(kept, valid, [&](std::int64_t, const float(&v)[V]) {
#pragma unroll
    for (int i = 0; i < V; ++i) top = fmaxf(top, v[i]);
  });
  top = over_block<Larger>(top, room);
  for_columns<T, V>(kept, valid, [&](std::int64_t, const float(&v)[V]) {
#pragma unroll
    for (int i = 0; i < V; ++i) sum += exponential<T>(v[i] - top);
  });
  sum = over_block<Add>(sum, room + kWarp);
  if (threadIdx.x == 0) maxima[row] = top;
  store_sums(sum, kept, targets[row], 0, valid, sums + 2 * row);
  store_gradient<T, V>(kept, columns, valid, targets[row], top, sum, scale, inverse_cap, at);
}

// *loss += scale * sum over rows of log(sum) + maximum - target's logit: one block.
__global__ void __launch_bounds__(kThreads)
    loss_kernel(std::int64_t rows, const float* __restrict__ maxima, const float* __restrict__ sums,
                float scale, float* __restrict__ loss) {
  __shared__ double room[kWarp];
  double total = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += kThreads) {
    total += static_cast<double>(logf(sums[2 * row]) + maxima[row] - sums[2 * row + 1]);
  }
  total = over_block<Add>(total, room);
  if (threadIdx.x == 0) *loss += static_cast<float>(static_cast<double>(scale) * total);
}

int add_loss(Stream stream, std::int64_t rows, const float* maxima, const float* sums, float scale,
             float* loss) {
  return launch(loss_kernel, dim3(1), kThreads, 0, stream, rows, maxima, sums, scale, loss);
}

float inverse_cap(const VocabularyShape& v) {
  return v.softcap > 0 ? 1.0F / v.softcap : 0.0F;
}

}  // namespace

int row_maxima(Stream stream, Type type, std::int64_t rows, const VocabularyShape& v,
               const void* logits, float* maxima) {
  return with_width(type, v.columns, {logits}, [&](auto zero, auto width) {
    using T = decltype(zero);
    return launch(row_maxima_kernel<T, decltype(width)::value>, dim3(blocks(rows, 1)), kThreads, 0,
                  stream, v.columns, v.valid, static_cast<const T*>(logits), maxima);
  });
}

int row_sums(Stream stream, Type type, std::int64_t rows, const VocabularyShape& v,
             const void* logits, const float* maxima, const std::int32_t* targets, float* sums) {
  return with_width(type, v.columns, {logits}, [&](auto zero, auto width) {
    using T = decltype(zero);
    return launch(row_sums_kernel<T, decltype(width)::value>, dim3(blocks(rows, 1)), kThreads, 0,
                  stream, v.columns, v.valid, v.first, static_cast<const T*>(logits), maxima,
                  targets, sums);
  });
}

int loss_and_gradient(Stream stream, Type type, std::int64_t rows, const VocabularyShape& v,
                      const float* maxima, const float* sums, const std::int32_t* targets,
                      float scale, void* logits, float* loss) {
  const int status = with_width(type, v.columns, {logits}, [&](auto zero, auto width) {
    using T = decltype(zero);
    return launch(gradient_kernel<T, decltype(width)::value>, dim3(blocks(rows, 1)), kThreads, 0,
                  stream, v.columns, v.valid, v.first, maxima, sums, targets, scale, inverse_cap(v),
                  static_cast<T*>(logits));
  });
  return status != 0 ? status : add_loss(stream, rows, maxima, sums, scale, loss);
}

int cross_entropy(Stream stream, Type type, std::int64_t rows, const VocabularyShape& v,
                  const std::int32_t* targets, float scale, float* maxima, float* sums,
                  void* logits, float* loss) {
  const int status = with_width(type, v.columns, {logits}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    const auto kept = v.columns * static_cast<std::int64_t>(sizeof(T));
    if constexpr (V > 1) {
      if (kept <= kKeptRowBytes) {
        return launch(kept_row_kernel<T, V>, dim3(blocks(rows, 1)), kThreads,
                      static_cast<std::size_t>(kept) + 2 * kWarp * sizeof(float), stream, v.columns,
                      v.valid, targets, scale, inverse_cap(v), maxima, sums,
                      static_cast<T*>(logits));
      }
    }
    return launch(cross_entropy_kernel<T, V>, dim3(blocks(rows, 1)), kThreads, 0, stream, v.columns,
                  v.valid, targets, scale, inverse_cap(v), maxima, sums, static_cast<T*>(logits));
  });
  return status != 0 ? status : add_loss(stream, rows, maxima, sums, scale, loss);
}

}  // namespace rehearse::exec::cuda
