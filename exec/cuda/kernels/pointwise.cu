// SPDX-License-Identifier: Apache-2.0
// Biases, residuals, positions, GELU and SwiGLU: each reads its operands once, 16 bytes per thread.
#include "exec/cuda/kernels/device.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr int kThreads = 256;
constexpr float kRoot = 0.7978845608028654F;  // sqrt(2 / pi)
constexpr float kCubic = 0.044715F;

// Calls f(i) for the first of every V elements of [0, count).
template <int V, class F>
__global__ void for_each_kernel(std::int64_t count, F f) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * V;
  if (i < count) f(i);
}
template <int V, class F>
int for_each(Stream stream, std::int64_t count, F f) {
  return launch(for_each_kernel<V, F>, dim3(blocks(count, kThreads * V)), kThreads, 0, stream,
                count, f);
}

// out(rows, cols) = x + y + bias(cols); x and bias may be null
template <class T, int V>
struct AddResidual {
  std::int64_t cols;
  const T *x, *y, *bias;
  T* out;
  __device__ void operator()(std::int64_t i) const {
    float sum[V], v[V];
    load(y + i, sum);
    if (bias != nullptr) {
      load(bias + i % cols, v);
#pragma unroll
      for (int k = 0; k < V; ++k) sum[k] += v[k];
    }
    if (x != nullptr) {
      load(x + i, v);
#pragma unroll
      for (int k = 0; k < V; ++k) sum[k] += v[k];
    }
    store(out + i, sum);
  }
};

// out(tokens, h) = x + positions((first + token) % sequence)
template <class T, int V>
struct AddPositions {
  std::int64_t h, sequence, first;
  const T *x, *positions;
  T* out;
  __device__ void operator()(std::int64_t i) const {
    float sum[V], v[V];
    load(x + i, sum);
    load(positions + (first + i / h) % sequence * h + i % h, v);
#pragma unroll
    for (int k = 0; k < V; ++k) sum[k] += v[k];
    store(out + i, sum);
  }
};

template <class T, int V>
struct Gelu {
  const T* u;
  T* g;
  __device__ void operator()(std::int64_t i) const {
    float v[V];
    load(u + i, v);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const float x = v[k];
      v[k] = 0.5F * x * (1.0F + hyperbolic_tangent<T>(kRoot * (x + kCubic * x * x * x)));
    }
    store(g + i, v);
  }
};

template <class T, int V>
struct GeluBackward {
  const T *dg, *u;
  T* du;
  __device__ void operator()(std::int64_t i) const {
    float v[V], d[V];
    load(u + i, v);
    load(dg + i, d);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const float x = v[k];
      const float t = hyperbolic_tangent<T>(kRoot * (x + kCubic * x * x * x));
      const float slope = kRoot * (1.0F + 3.0F * kCubic * x * x);
      d[k] *= 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * slope;
    }
    store(du + i, d);
  }
};

template <class T, int V>
struct Swiglu {
  std::int64_t f;
  const T* u;
  T* g;
  __device__ void operator()(std::int64_t i) const {
    const T* gate = u + i / f * 2 * f + i % f;
    float a[V], b[V];
    load(gate, a);
    load(gate + f, b);
#pragma unroll
    for (int k = 0; k < V; ++k) b[k] *= a[k] / (1.0F + exponential<T>(-a[k]));
    store(g + i, b);
  }
};

template <class T, int V>
struct SwigluBackward {
  std::int64_t f;
  const T *dg, *u;
  T* du;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t at = i / f * 2 * f + i % f;
    float a[V], b[V], d[V];
    load(u + at, a);
    load(u + at + f, b);
    load(dg + i, d);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const float sigmoid = 1.0F / (1.0F + exponential<T>(-a[k]));
      const float silu = a[k] * sigmoid;
      a[k] = d[k] * b[k] * (sigmoid + silu * (1.0F - sigmoid));
      b[k] = d[k] * silu;
    }
    store(du + at, a);
    store(du + at + f, b);
  }
};

}  // namespace

int add_bias(Stream stream, Type type, std::int64_t rows, std::int64_t cols, const void* bias,
             void* y) {
  return with_width(type, cols, {bias, y}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return for_each<V>(stream, rows * cols,
                       AddResidual<T, V>{cols, nullptr, static_cast<const T*>(y),
                                         static_cast<const T*>(bias), static_cast<T*>(y)});
  });
}

int add_residual(Stream stream, Type type, std::int64_t rows, std::int64_t cols, const void* x,
                 const void* y, const void* bias, void* out) {
  return with_width(type, cols, {x, y, bias, out}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return for_each<V>(stream, rows * cols,
                       AddResidual<T, V>{cols, static_cast<const T*>(x), static_cast<const T*>(y),
                                         static_cast<const T*>(bias), static_cast<T*>(out)});
  });
}

int add_positions(Stream stream, Type type, std::int64_t tokens, std::int64_t h, std::int64_t first,
                  std::int64_t sequence, const void* x, const void* positions, void* out) {
  return with_width(type, h, {x, positions, out}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return for_each<V>(stream, tokens * h,
                       AddPositions<T, V>{h, sequence, first, static_cast<const T*>(x),
                                          static_cast<const T*>(positions), static_cast<T*>(out)});
  });
}

int gelu(Stream stream, Type type, std::int64_t count, const void* u, void* g) {
  return with_width(type, count, {u, g}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return for_each<V>(stream, count, Gelu<T, V>{static_cast<const T*>(u), static_cast<T*>(g)});
  });
}

int gelu_backward(Stream stream, Type type, std::int64_t count, const void* dg, const void* u,
                  void* du) {
  return with_width(type, count, {dg, u, du}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return for_each<V>(stream, count,
                       GeluBackward<T, V>{static_cast<const T*>(dg), static_cast<const T*>(u),
                                          static_cast<T*>(du)});
  });
}

int swiglu(Stream stream, Type type, std::int64_t rows, std::int64_t f, const void* u, void* g) {
  return with_width(type, f, {u, g}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return for_each<V>(stream, rows * f,
                       Swiglu<T, V>{f, static_cast<const T*>(u), static_cast<T*>(g)});
  });
}

int swiglu_backward(Stream stream, Type type, std::int64_t rows, std::int64_t f, const void* dg,
                    const void* u, void* du) {
  return with_width(type, f, {dg, u, du}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return for_each<V>(stream, rows * f,
                       SwigluBackward<T, V>{f, static_cast<const T*>(dg), static_cast<const T*>(u),
                                            static_cast<T*>(du)});
  });
}

}  // namespace rehearse::exec::cuda
