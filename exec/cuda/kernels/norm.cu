// LayerNorm and RMSNorm, forward: one warp per row. The row is read three times (twice for
// RMSNorm), from HBM once: a block's rows stay in L1.
#include "exec/cuda/kernels/device.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr int kRows = 4;  // warps, hence rows, of a block

// kCentred: LayerNorm.
template <class T, int V, bool kCentred>
__global__ void norm_kernel(std::int64_t rows, std::int64_t h, const T* __restrict__ x,
                            const T* __restrict__ weight, const T* __restrict__ bias,
                            double epsilon, T* __restrict__ y, float* __restrict__ statistics) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kRows + threadIdx.x / kWarp;
  if (row >= rows) return;  // the whole warp
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const T* in = x + row * h;
  float v[V];
  float mean = 0;
  if constexpr (kCentred) {
    float sum = 0;
    for (std::int64_t c = lane * V; c < h; c += kWarp * V) {
      load(in + c, v);
#pragma unroll
      for (int i = 0; i < V; ++i) sum += v[i];
    }
    mean = over_warp<Add>(sum) / static_cast<float>(h);
  }
  float squares = 0;
  for (std::int64_t c = lane * V; c < h; c += kWarp * V) {
    load(in + c, v);
#pragma unroll
    for (int i = 0; i < V; ++i) squares += (v[i] - mean) * (v[i] - mean);
  }
  squares = over_warp<Add>(squares);
  const float rstd = static_cast<float>(
      1.0 / sqrt(static_cast<double>(squares) / static_cast<double>(h) + epsilon));
  for (std::int64_t c = lane * V; c < h; c += kWarp * V) {
    float w[V], b[V] = {};
    load(in + c, v);
    load(weight + c, w);
    if (kCentred && bias != nullptr) load(bias + c, b);
#pragma unroll
    for (int i = 0; i < V; ++i) v[i] = (v[i] - mean) * rstd * w[i] + b[i];
    store(y + row * h + c, v);
  }
  if (lane == 0) {
    if constexpr (kCentred) {
      statistics[2 * row] = mean;
      statistics[2 * row + 1] = rstd;
    } else {
      statistics[row] = rstd;
    }
  }
}

template <bool kCentred>
int norm(Stream stream, Type type, std::int64_t rows, std::int64_t h, const void* x,
         const void* weight, const void* bias, double epsilon, void* y, float* statistics) {
  return with_width(type, h, {x, weight, bias, y}, [&](auto zero, auto width) {
    using T = decltype(zero);
    return launch(norm_kernel<T, decltype(width)::value, kCentred>, dim3(blocks(rows, kRows)),
                  kRows * kWarp, 0, stream, rows, h, static_cast<const T*>(x),
                  static_cast<const T*>(weight), static_cast<const T*>(bias), epsilon,
                  static_cast<T*>(y), statistics);
  });
}

}  // namespace

int layer_norm(Stream stream, Type type, std::int64_t rows, std::int64_t h, const void* x,
               const void* weight, const void* bias, double epsilon, void* y, float* statistics) {
  return norm<true>(stream, type, rows, h, x, weight, bias, epsilon, y, statistics);
}

int rms_norm(Stream stream, Type type, std::int64_t rows, std::int64_t h, const void* x,
             const void* weight, double epsilon, void* y, float* statistics) {
  return norm<false>(stream, type, rows, h, x, weight, nullptr, epsilon, y, statistics);
}

}  // namespace rehearse::exec::cuda
