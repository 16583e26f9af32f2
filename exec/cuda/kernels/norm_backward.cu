// SPDX-License-Identifier: Apache-2.0
// LayerNorm and RMSNorm, backward: the input's gradient with one warp per row, the parameters' as
// column sums.
#include "exec/cuda/kernels/column_sums.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr int kRows = 4;  // warps, hence rows, of a block

template <bool kCentred>
__device__ __forceinline__ void statistics_of(const float* statistics, std::int64_t row,
                                              float& mean, float& rstd) {
  mean = kCentred ? statistics[2 * row] : 0.0F;
  rstd = kCentred ? statistics[2 * row + 1] : statistics[row];
}

// dx = rstd (g - mean(g) - hat mean(g hat)) + residual with g = dy weight, hat = (x - mean) rstd;
// RMSNorm has no mean(g). dx may be dy or residual: a lane reads what it overwrites.
template <class T, int V, bool kCentred>
__global__ void norm_input_kernel(std::int64_t rows, std::int64_t h, const T* dy,
                                  const T* __restrict__ x, const float* __restrict__ statistics,
                                  const T* __restrict__ weight, float offset, const T* residual,
                                  T* dx) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kRows + threadIdx.x / kWarp;
  if (row >= rows) return;  // the whole warp
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  float mean, rstd;
  statistics_of<kCentred>(statistics, row, mean, rstd);
  const T *g = dy + row * h, *in = x + row * h;
  float gradient[V], value[V], scale[V];
  float sum = 0, product = 0;
  for (std::int64_t c = lane * V; c < h; c += kWarp * V) {
    load(g + c, gradient);
    load(in + c, value);
    load(weight + c, scale);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float scaled = gradient[i] * (scale[i] + offset);
      sum += scaled;
      product += scaled * (value[i] - mean) * rstd;
    }
  }
  sum = kCentred ? over_warp<Add>(sum) / static_cast<float>(h) : 0.0F;
  product = over_warp<Add>(product) / static_cast<float>(h);
  for (std::int64_t c = lane * V; c < h; c += kWarp * V) {
    float add[V] = {};
    load(g + c, gradient);
    load(in + c, value);
    load(weight + c, scale);
    if (residual != nullptr) load(residual + row * h + c, add);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      const float hat = (value[i] - mean) * rstd;
      value[i] = rstd * (gradient[i] * (scale[i] + offset) - sum - hat * product) + add[i];
    }
    store(dx + row * h + c, value);
  }
}

// What a row adds to the gradients of weight and (LayerNorm) bias.
template <class T, int V, bool kCentred>
struct Parameters {
  static constexpr int kOutputs = kCentred ? 2 : 1;
  const T *dy, *x;
  const float* statistics;
  std::int64_t h;
  __device__ void operator()(std::int64_t row, std::int64_t column,
                             float (&value)[kOutputs][V]) const {
    float mean, rstd, gradient[V], in[V];
    statistics_of<kCentred>(statistics, row, mean, rstd);
    load(dy + row * h + column, gradient);
    load(x + row * h + column, in);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      value[0][i] = gradient[i] * (in[i] - mean) * rstd;
      if constexpr (kCentred) value[1][i] = gradient[i];
    }
  }
};

template <bool kCentred>
int norm_backward(Stream stream, Type type, std::int64_t rows, std::int64_t h, const void* dy,
                  const void* x, const float* statistics, const void* weight, double offset,
                  const void* residual, void* dx, float* d_weight, float* d_bias, void* scratch) {
  return with_width(type, h, {dy, x, weight, residual, dx}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    if (d_weight != nullptr || d_bias != nullptr) {  // first: dx may be dy
      const Parameters<T, V, kCentred> term{static_cast<const T*>(dy), static_cast<const T*>(x),
                                            statistics, h};
      int status = 0;
      if constexpr (kCentred) {
        status = add_over_rows<V>(stream, rows, h, term, {d_weight, d_bias}, scratch);
      } else {
        status = add_over_rows<V>(stream, rows, h, term, {d_weight}, scratch);
      }
      if (status != 0) return status;
    }
    if (dx == nullptr) return 0;
    return launch(norm_input_kernel<T, V, kCentred>, dim3(blocks(rows, kRows)), kRows * kWarp, 0,
                  stream, rows, h, static_cast<const T*>(dy), static_cast<const T*>(x), statistics,
                  static_cast<const T*>(weight), offset, static_cast<const T*>(residual),
                  static_cast<T*>(dx));
  });
}

}  // namespace

int layer_norm_backward(Stream stream, Type type, std::int64_t rows, std::int64_t h, const void* dy,
                        const void* x, const float* statistics, const void* weight,
                        const void* residual, void* dx, float* d_weight, float* d_bias,
                        void* scratch) {
  return norm_backward<true>(stream, type, rows, h, dy, x, statistics, weight, 0, residual, dx,
                             d_weight, d_bias, scratch);
}

int rms_norm_backward(Stream stream, Type type, std::int64_t rows, std::int64_t h, const void* dy,
                      const void* x, const float* statistics, const void* weight,
                      double weight_offset, const void* residual, void* dx, float* d_weight,
                      void* scratch) {
  return norm_backward<false>(stream, type, rows, h, dy, x, statistics, weight, weight_offset,
                              residual, dx, d_weight, nullptr, scratch);
}

}  // namespace rehearse::exec::cuda
