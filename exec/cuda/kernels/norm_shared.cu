// SPDX-License-Identifier: Apache-2.0
// LayerNorm and RMSNorm of rows whose columns several ranks share, in two steps: one warp per row.
#include "exec/cuda/kernels/column_sums.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr int kRows = 4;  // warps, hence rows, of a block

__device__ __forceinline__ std::int64_t row_of_warp() {
  return static_cast<std::int64_t>(blockIdx.x) * kRows + threadIdx.x / kWarp;
}
// Calls f(c) for this lane's first of every V columns of a row.
template <int V, class F>
__device__ __forceinline__ void for_lane(std::int64_t h, F f) {
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) % kWarp * V; c < h; c += kWarp * V)
    f(c);
}
__device__ __forceinline__ void statistics_of(const SharedNorm& s, const float* statistics,
                                              std::int64_t row, float& mean, float& rstd) {
  mean = s.centred ? statistics[2 * row] : 0.0F;
  rstd = s.centred ? statistics[2 * row + 1] : statistics[row];
}
// One or two sums of a row.
__device__ __forceinline__ void store_sums(const SharedNorm& s, std::int64_t row, float first,
                                           float second, float* sums) {
  first = over_warp<Add>(first);
  second = over_warp<Add>(second);
  if (threadIdx.x % kWarp != 0) return;
  if (s.centred) sums[2 * row] = first;
  sums[s.centred ? 2 * row + 1 : row] = second;
}

template <class T, int V>
__global__ void moments_kernel(SharedNorm s, const T* __restrict__ x, float* __restrict__ sums) {
  const std::int64_t row = row_of_warp();
  if (row >= s.rows) return;  // the whole warp
  float sum = 0, squares = 0;
  for_lane<V>(s.h, [&](std::int64_t c) {
    float v[V];
    load(x + row * s.h + c, v);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      sum += v[i];
      squares += v[i] * v[i];
    }
  });
  store_sums(s, row, sum, squares, sums);
}

template <class T, int V>
__global__ void shared_norm_kernel(SharedNorm s, const T* x, const T* __restrict__ weight,
                                   const T* __restrict__ bias, float* sums, T* y) {
  const std::int64_t row = row_of_warp();
  if (row >= s.rows) return;  // the whole warp
  const auto offset = static_cast<float>(s.weight_offset);
  const auto n = static_cast<double>(s.total);
  float* of = sums + row * (s.centred ? 2 : 1);
  const double average = s.centred ? static_cast<double>(of[0]) / n : 0;
  const double variance = static_cast<double>(of[s.centred ? 1 : 0]) / n - average * average;
  const auto mean = static_cast<float>(average);
  const auto rstd = static_cast<float>(1.0 / sqrt((variance > 0 ? variance : 0) + s.epsilon));
  for_lane<V>(s.h, [&](std::int64_t c) {
    float v[V], w[V], b[V] = {};
    load(x + row * s.h + c, v);
    load(weight + c, w);
    if (bias != nullptr) load(bias + c, b);
#pragma unroll
    for (int i = 0; i < V; ++i) v[i] = (v[i] - mean) * rstd * (w[i] + offset) + b[i];
    store(y + row * s.h + c, v);
  });
  __syncwarp();  // all lanes have read the sums
  if (threadIdx.x % kWarp != 0) return;
  if (s.centred) of[0] = mean;
  of[s.centred ? 1 : 0] = rstd;
}

template <class T, int V>
__global__ void row_gradients_kernel(SharedNorm s, const T* __restrict__ dy,
                                     const T* __restrict__ x, const float* __restrict__ statistics,
                                     const T* __restrict__ weight, float* __restrict__ sums) {
  const std::int64_t row = row_of_warp();
  if (row >= s.rows) return;  // the whole warp
  const auto offset = static_cast<float>(s.weight_offset);
  float mean, rstd, sum = 0, product = 0;
  statistics_of(s, statistics, row, mean, rstd);
  for_lane<V>(s.h, [&](std::int64_t c) {
    float g[V], v[V], w[V];
    load(dy + row * s.h + c, g);
    load(x + row * s.h + c, v);
    load(weight + c, w);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float scaled = g[i] * (w[i] + offset);
      sum += scaled;
      product += scaled * ((v[i] - mean) * rstd);
    }
  });
  store_sums(s, row, sum, product, sums);
}

// dx may be dy or residual: a lane reads what it overwrites.
template <class T, int V>
__global__ void shared_input_kernel(SharedNorm s, const T* dy, const T* __restrict__ x,
                                    const float* __restrict__ statistics,
                                    const float* __restrict__ sums, const T* __restrict__ weight,
                                    const T* residual, T* dx) {
  const std::int64_t row = row_of_warp();
  if (row >= s.rows) return;  // the whole warp
  const auto offset = static_cast<float>(s.weight_offset);
  const auto n = static_cast<double>(s.total);
  const float* of = sums + row * (s.centred ? 2 : 1);
  const float sum = s.centred ? static_cast<float>(static_cast<double>(of[0]) / n) : 0.0F;
  const auto product = static_cast<float>(static_cast<double>(of[s.centred ? 1 : 0]) / n);
  float mean, rstd;
  statistics_of(s, statistics, row, mean, rstd);
  for_lane<V>(s.h, [&](std::int64_t c) {
    float g[V], v[V], w[V], add[V] = {};
    load(dy + row * s.h + c, g);
    load(x + row * s.h + c, v);
    load(weight + c, w);
    if (residual != nullptr) load(residual + row * s.h + c, add);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float hat = (v[i] - mean) * rstd;
      v[i] = rstd * (g[i] * (w[i] + offset) - sum - hat * product) + add[i];
    }
    store(dx + row * s.h + c, v);
  });
}

// What a row adds to the gradients of weight and bias.
template <class T, int V>
struct SharedParameters {
  static constexpr int kOutputs = 2;
  SharedNorm s;
  const T *dy, *x;
  const float* statistics;
  __device__ void operator()(std::int64_t row, std::int64_t column,
                             float (&value)[kOutputs][V]) const {
    float mean, rstd, gradient[V], in[V];
    statistics_of(s, statistics, row, mean, rstd);
    load(dy + row * s.h + column, gradient);
    load(x + row * s.h + column, in);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      value[0][i] = gradient[i] * (in[i] - mean) * rstd;
      value[1][i] = gradient[i];
    }
  }
};

}  // namespace

int row_moments(Stream stream, Type type, const SharedNorm& s, const void* x, float* sums) {
  return with_width(type, s.h, {x}, [&](auto zero, auto width) {
    using T = decltype(zero);
    return launch(moments_kernel<T, decltype(width)::value>, dim3(blocks(s.rows, kRows)),
                  kRows * kWarp, 0, stream, s, static_cast<const T*>(x), sums);
  });
}

int shared_norm(Stream stream, Type type, const SharedNorm& s, const void* x, const void* weight,
                const void* bias, float* sums, void* y) {
  return with_width(type, s.h, {x, weight, bias, y}, [&](auto zero, auto width) {
    using T = decltype(zero);
    return launch(shared_norm_kernel<T, decltype(width)::value>, dim3(blocks(s.rows, kRows)),
                  kRows * kWarp, 0, stream, s, static_cast<const T*>(x),
                  static_cast<const T*>(weight), static_cast<const T*>(bias), sums,
                  static_cast<T*>(y));
  });
}

int row_gradients(Stream stream, Type type, const SharedNorm& s, const void* dy, const void* x,
                  const float* statistics, const void* weight, float* sums) {
  return with_width(type, s.h, {dy, x, weight}, [&](auto zero, auto width) {
    using T = decltype(zero);
    return launch(row_gradients_kernel<T, decltype(width)::value>, dim3(blocks(s.rows, kRows)),
                  kRows * kWarp, 0, stream, s, static_cast<const T*>(dy), static_cast<const T*>(x),
                  statistics, static_cast<const T*>(weight), sums);
  });
}

int shared_norm_backward(Stream stream, Type type, const SharedNorm& s, const void* dy,
                         const void* x, const float* statistics, const float* sums,
                         const void* weight, const void* residual, void* dx, float* d_weight,
                         float* d_bias, void* scratch) {
  return with_width(type, s.h, {dy, x, weight, residual, dx}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    const SharedParameters<T, V> term{s, static_cast<const T*>(dy), static_cast<const T*>(x),
                                      statistics};
    // first: dx may be dy
    const int status = add_over_rows<V>(stream, s.rows, s.h, term, {d_weight, d_bias}, scratch);
    if (status != 0) return status;
    return launch(shared_input_kernel<T, V>, dim3(blocks(s.rows, kRows)), kRows * kWarp, 0, stream,
                  s, static_cast<const T*>(dy), static_cast<const T*>(x), statistics, sums,
                  static_cast<const T*>(weight), static_cast<const T*>(residual),
                  static_cast<T*>(dx));
  });
}

}  // namespace rehearse::exec::cuda
