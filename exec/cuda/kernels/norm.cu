// SPDX-License-Identifier: Apache-2.0
// LayerNorm and RMSNorm, forward, alone or of a residual sum: one warp per row. The row is read
// three times (twice for RMSNorm), from HBM once: a block's rows stay in L1.
#include "exec/cuda/kernels/device.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr int kRows = 4;  // warps, hence rows, of a block

// The row whose norm is taken: it lies there, or it is a sum that the first pass over it writes.
// Later passes read back what the same thread wrote, so `sum` is not __restrict__.
template <class T, int V>
struct RankClass {
  const T* in;
  __device__ __forceinline__ void first(std::int64_t c, float (&v)[V]) const { load(in + c, v); }
  __device__ __forceinline__ void again(std::int64_t c, float (&v)[V]) const { load(in + c, v); }
};
template <class T, int V>
struct SumRow {
  const T *x, *y, *bias;  // bias may be null
  T* sum;
  __device__ __forceinline__ void first(std::int64_t c, float (&v)[V]) const {
    float add[V];
    load(y + c, v);  // added in the order of pointwise.cu
    if (bias != nullptr) {
      load(bias + c, add);
#pragma unroll
      for (int i = 0; i < V; ++i) v[i] += add[i];
    }
    load(x + c, add);
#pragma unroll
    for (int i = 0; i < V; ++i) v[i] = widen(narrow<T>(v[i] + add[i]));
    store(sum + c, v);
  }
  __device__ __forceinline__ void again(std::int64_t c, float (&v)[V]) const {
    load(sum + c, v);
  }
};

// y(h) = norm of the row; kCentred: LayerNorm.
template <class T, int V, bool kCentred, class Source>
__device__ __forceinline__ void norm_of(const Source& row, std::int64_t h,
                                        const T* __restrict__ weight, const T* __restrict__ bias,
                                        float offset, double epsilon, T* y, float* statistics) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float v[V];
  float mean = 0;
  if constexpr (kCentred) {
    float sum = 0;
    for (std::int64_t c = lane * V; c < h; c += kWarp * V) {
      row.first(c, v);
#pragma unroll
      for (int i = 0; i < V; ++i) sum += v[i];
    }
    mean = over_warp<Add>(sum) / static_cast<float>(h);
  }
  float squares = 0;
  for (std::int64_t c = lane * V; c < h; c += kWarp * V) {
    kCentred ? row.again(c, v) : row.first(c, v);
#pragma unroll
    for (int i = 0; i < V; ++i) squares += (v[i] - mean) * (v[i] - mean);
  }
  squares = over_warp<Add>(squares);
  const float rstd = static_cast<float>(
      1.0 / sqrt(static_cast<double>(squares) / static_cast<double>(h) + epsilon));
  for (std::int64_t c = lane * V; c < h; c += kWarp * V) {
    float w[V], b[V] = {};
    row.again(c, v);
    load(weight + c, w);
    if (kCentred && bias != nullptr) load(bias + c, b);
#pragma unroll
    for (int i = 0; i < V; ++i) v[i] = (v[i] - mean) * rstd * (w[i] + offset) + b[i];
    store(y + c, v);
  }
  if (lane == 0) {
    if constexpr (kCentred) {
      statistics[0] = mean;
      statistics[1] = rstd;
    } else {
      statistics[0] = rstd;
    }
  }
}

__device__ __forceinline__ std::int64_t row_of_warp() {
  return static_cast<std::int64_t>(blockIdx.x) * kRows + threadIdx.x / kWarp;
}

template <class T, int V, bool kCentred>
__global__ void norm_kernel(std::int64_t rows, std::int64_t h, const T* __restrict__ x,
                            const T* __restrict__ weight, const T* __restrict__ bias, float offset,
                            double epsilon, T* __restrict__ y, float* __restrict__ statistics) {
  const std::int64_t row = row_of_warp();
  if (row >= rows) return;  // the whole warp
  norm_of<T, V, kCentred>(RankClass<T, V>{x + row * h}, h, weight, bias, offset, epsilon,
                          y + row * h, statistics + (kCentred ? 2 : 1) * row);
}

template <class T, int V, bool kCentred>
__global__ void sum_norm_kernel(SumNorm n) {
  const std::int64_t row = row_of_warp(), at = row * n.h;
  if (row >= n.rows) return;  // the whole warp
  const SumRow<T, V> source{static_cast<const T*>(n.x) + at, static_cast<const T*>(n.y) + at,
                            static_cast<const T*>(n.bias), static_cast<T*>(n.sum) + at};
  norm_of<T, V, kCentred>(source, n.h, static_cast<const T*>(n.weight),
                          static_cast<const T*>(n.norm_bias),
                          kCentred ? 0.0F : static_cast<float>(n.weight_offset), n.epsilon,
                          static_cast<T*>(n.out) + at, n.statistics + (kCentred ? 2 : 1) * row);
}

template <bool kCentred>
int norm(Stream stream, Type type, std::int64_t rows, std::int64_t h, const void* x,
         const void* weight, const void* bias, double offset, double epsilon, void* y,
         float* statistics) {
  return with_width(type, h, {x, weight, bias, y}, [&](auto zero, auto width) {
    using T = decltype(zero);
    return launch(norm_kernel<T, decltype(width)::value, kCentred>, dim3(blocks(rows, kRows)),
                  kRows * kWarp, 0, stream, rows, h, static_cast<const T*>(x),
                  static_cast<const T*>(weight), static_cast<const T*>(bias), offset, epsilon,
                  static_cast<T*>(y), statistics);
  });
}

// A sum that drops is a pass of its own: there a counter serves eight runs of columns.
template <bool kCentred>
int sum_norm(Stream stream, Type type, const SumNorm& n) {
  if (n.dropout.threshold > 0) {
    const int status = add_residual(stream, type, n.rows, n.h, n.x, n.y, n.bias, n.dropout, n.sum);
    if (status != 0) return status;
    return norm<kCentred>(stream, type, n.rows, n.h, n.sum, n.weight, n.norm_bias,
                          kCentred ? 0 : n.weight_offset, n.epsilon, n.out, n.statistics);
  }
  return with_width(type, n.h, {n.x, n.y, n.bias, n.sum, n.weight, n.norm_bias, n.out},
                    [&](auto zero, auto width) {
                      return launch(
                          sum_norm_kernel<decltype(zero), decltype(width)::value, kCentred>,
                          dim3(blocks(n.rows, kRows)), kRows * kWarp, 0, stream, n);
                    });
}

}  // namespace

int layer_norm(Stream stream, Type type, std::int64_t rows, std::int64_t h, const void* x,
               const void* weight, const void* bias, double epsilon, void* y, float* statistics) {
  return norm<true>(stream, type, rows, h, x, weight, bias, 0, epsilon, y, statistics);
}

int rms_norm(Stream stream, Type type, std::int64_t rows, std::int64_t h, const void* x,
             const void* weight, double weight_offset, double epsilon, void* y, float* statistics) {
  return norm<false>(stream, type, rows, h, x, weight, nullptr, weight_offset, epsilon, y,
                     statistics);
}

int add_layer_norm(Stream stream, Type type, const SumNorm& call) {
  return sum_norm<true>(stream, type, call);
}

int add_rms_norm(Stream stream, Type type, const SumNorm& call) {
  return sum_norm<false>(stream, type, call);
}

}  // namespace rehearse::exec::cuda
