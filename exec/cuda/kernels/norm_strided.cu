// SPDX-License-Identifier: Apache-2.0
// RMSNorms of stretches of columns, in two steps: one warp per stretch.
#include "exec/cuda/kernels/column_sums.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr int kWarps = 4;  // of a block

// A warp's stretch: its number, and where it begins.
struct Stretch {
  std::int64_t number, begin;
};
__device__ __forceinline__ Stretch stretch_of(const StridedNorm& s) {
  const std::int64_t number = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  return {number, number / s.groups * s.stride + number % s.groups * s.width};
}
__device__ __forceinline__ bool here(const StridedNorm& s, Stretch at) {
  return at.number < s.rows * s.groups;
}
// Calls f(c) for this lane's first of every V columns of a stretch.
template <int V, class F>
__device__ __forceinline__ void for_lane(std::int64_t width, F f) {
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) % kWarp * V; c < width;
       c += kWarp * V)
    f(c);
}

// Those of a norm without weights are ones.
template <class T, int V>
__device__ void load_weights(const T* weight, std::int64_t c, float (&scale)[V]) {
  if (weight != nullptr) return load(weight + c, scale);
#pragma unroll
  for (int i = 0; i < V; ++i) scale[i] = 1;
}

// sums = those of squares, or (dy given) of dy (weight + offset) x
template <class T, int V>
__global__ void sums_kernel(StridedNorm s, const T* __restrict__ dy, const T* __restrict__ x,
                            const T* __restrict__ weight, float* __restrict__ sums) {
  const Stretch at = stretch_of(s);
  if (!here(s, at)) return;  // the whole warp
  const auto offset = static_cast<float>(s.weight_offset);
  float sum = 0;
  for_lane<V>(s.width, [&](std::int64_t c) {
    float in[V], gradient[V], scale[V];
    load(x + at.begin + c, in);
    if (dy != nullptr) {
      load(dy + at.begin + c, gradient);
      load_weights(weight, c, scale);
    }
#pragma unroll
    for (int i = 0; i < V; ++i)
      sum += in[i] * (dy == nullptr ? in[i] : gradient[i] * (scale[i] + offset));
  });
  sum = over_warp<Add>(sum);
  if (threadIdx.x % kWarp == 0) sums[at.number] = sum;
}

template <class T, int V>
__global__ void strided_norm_kernel(StridedNorm s, const T* x, const T* __restrict__ weight,
                                    float* sums, T* y) {
  const Stretch at = stretch_of(s);
  if (!here(s, at)) return;  // the whole warp
  const auto offset = static_cast<float>(s.weight_offset);
  float squares = 0;
  if (s.alone) {
    for_lane<V>(s.width, [&](std::int64_t c) {
      float v[V];
      load(x + at.begin + c, v);
#pragma unroll
      for (int i = 0; i < V; ++i) squares += v[i] * v[i];
    });
    squares = over_warp<Add>(squares);
  } else {
    squares = sums[at.number];
  }
  const double mean = static_cast<double>(squares) / static_cast<double>(s.total);
  const auto rstd = static_cast<float>(1.0 / sqrt(mean + s.epsilon));
  for_lane<V>(s.width, [&](std::int64_t c) {
    float v[V], scale[V];
    load(x + at.begin + c, v);
    load_weights(weight, c, scale);
#pragma unroll
    for (int i = 0; i < V; ++i) v[i] = v[i] * rstd * (scale[i] + offset);
    store(y + at.begin + c, v);
  });
  __syncwarp();  // all lanes have read the sum
  if (threadIdx.x % kWarp == 0) sums[at.number] = rstd;
}

template <class T, int V>
__global__ void strided_input_kernel(StridedNorm s, const T* dy, const T* __restrict__ x,
                                     const float* __restrict__ statistics,
                                     const float* __restrict__ sums, const T* __restrict__ weight,
                                     T* dx) {
  const Stretch at = stretch_of(s);
  if (!here(s, at)) return;  // the whole warp
  const auto offset = static_cast<float>(s.weight_offset);
  const float rstd = statistics[at.number];
  float products = 0;
  if (s.alone) {
    for_lane<V>(s.width, [&](std::int64_t c) {
      float gradient[V], in[V], scale[V];
      load(dy + at.begin + c, gradient);
      load(x + at.begin + c, in);
      load_weights(weight, c, scale);
#pragma unroll
      for (int i = 0; i < V; ++i) products += gradient[i] * (scale[i] + offset) * in[i];
    });
    products = over_warp<Add>(products);
  } else {
    products = sums[at.number];
  }
  const float product = products * rstd / static_cast<float>(s.total);
  for_lane<V>(s.width, [&](std::int64_t c) {
    float gradient[V], in[V], scale[V];
    load(dy + at.begin + c, gradient);
    load(x + at.begin + c, in);
    load_weights(weight, c, scale);
#pragma unroll
    for (int i = 0; i < V; ++i)
      in[i] = rstd * (gradient[i] * (scale[i] + offset) - in[i] * rstd * product);
    store(dx + at.begin + c, in);
  });
}

// What a stretch adds to the weight's gradient.
template <class T, int V>
struct StridedWeight {
  static constexpr int kOutputs = 1;
  StridedNorm s;
  const T *dy, *x;
  const float* statistics;
  __device__ void operator()(std::int64_t number, std::int64_t column,
                             float (&value)[kOutputs][V]) const {
    const std::int64_t at = number / s.groups * s.stride + number % s.groups * s.width + column;
    float gradient[V], in[V];
    load(dy + at, gradient);
    load(x + at, in);
#pragma unroll
    for (int i = 0; i < V; ++i) value[0][i] = gradient[i] * in[i] * statistics[number];
  }
};

// Calls f(T{}, integral_constant<V>): stretches begin at 16 bytes where widths and strides allow.
template <class F>
int with_stretches(Type type, const StridedNorm& s, std::initializer_list<const void*> arrays,
                   F f) {
  return with_width(type, s.stride % 8 == 0 ? s.width : 1, arrays, f);
}
dim3 grid_of(const StridedNorm& s) {
  return dim3(blocks(s.rows * s.groups, kWarps));
}

}  // namespace

int row_squares(Stream stream, Type type, const StridedNorm& s, const void* x, float* sums) {
  return with_stretches(type, s, {x}, [&](auto zero, auto width) {
    using T = decltype(zero);
    return launch(sums_kernel<T, decltype(width)::value>, grid_of(s), kWarps * kWarp, 0, stream, s,
                  nullptr, static_cast<const T*>(x), nullptr, sums);
  });
}

int row_products(Stream stream, Type type, const StridedNorm& s, const void* dy, const void* x,
                 const void* weight, float* sums) {
  return with_stretches(type, s, {dy, x, weight}, [&](auto zero, auto width) {
    using T = decltype(zero);
    return launch(sums_kernel<T, decltype(width)::value>, grid_of(s), kWarps * kWarp, 0, stream, s,
                  static_cast<const T*>(dy), static_cast<const T*>(x),
                  static_cast<const T*>(weight), sums);
  });
}

int strided_norm(Stream stream, Type type, const StridedNorm& s, const void* x, const void* weight,
                 float* sums, void* y) {
  return with_stretches(type, s, {x, weight, y}, [&](auto zero, auto width) {
    using T = decltype(zero);
    return launch(strided_norm_kernel<T, decltype(width)::value>, grid_of(s), kWarps * kWarp, 0,
                  stream, s, static_cast<const T*>(x), static_cast<const T*>(weight), sums,
                  static_cast<T*>(y));
  });
}

int strided_norm_backward(Stream stream, Type type, const StridedNorm& s, const void* dy,
                          const void* x, const float* statistics, const float* sums,
                          const void* weight, void* dx, float* d_weight, void* scratch) {
  return with_stretches(type, s, {dy, x, weight, dx}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    const StridedWeight<T, V> term{s, static_cast<const T*>(dy), static_cast<const T*>(x),
                                   statistics};
    if (d_weight != nullptr) {  // first: dx may be dy
      const int status =
          add_over_rows<V>(stream, s.rows * s.groups, s.width, term, {d_weight}, scratch);
      if (status != 0) return status;
    }
    return launch(strided_input_kernel<T, V>, grid_of(s), kWarps * kWarp, 0, stream, s,
                  static_cast<const T*>(dy), static_cast<const T*>(x), statistics, sums,
                  static_cast<const T*>(weight), static_cast<T*>(dx));
  });
}

}  // namespace rehearse::exec::cuda
