// SPDX-License-Identifier: Apache-2.0
// The functions of an MLP, plain and gated, each in one pass. The kind is known at run time: all
// threads take the same branch, beside what memory takes.
#include "exec/cuda/kernels/pointwise.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr float kRoot = 0.7978845608028654F;  // sqrt(2 / pi)
constexpr float kCubic = 0.044715F;
constexpr float kSteepness = 1.702F;  // of quick GELU

template <class T>
__device__ __forceinline__ float logistic(float x) {
  return 1.0F / (1.0F + exponential<T>(-x));
}
__device__ __forceinline__ float normal_share(float x) {  // the normal distribution's, below x
  return 0.5F * erfcf(x * -0.7071067811865476F);
}

template <class T>
__device__ __forceinline__ float value_of(ActivationKind kind, float x) {
  switch (kind) {
    case ActivationKind::GeluTanh:
      return 0.5F * x * (1.0F + hyperbolic_tangent<T>(kRoot * (x + kCubic * x * x * x)));
    case ActivationKind::GeluExact:
      return x * normal_share(x);
    case ActivationKind::QuickGelu:
      return x * logistic<T>(kSteepness * x);
    case ActivationKind::Relu:
      return x < 0 ? 0.0F : x;
    case ActivationKind::Relu2:
      return x < 0 ? 0.0F : x * x;
    case ActivationKind::Silu:
      return x / (1.0F + exponential<T>(-x));
    case ActivationKind::Tanh:
      return hyperbolic_tangent<T>(x);
  }
  return 0;
}

template <class T>
__device__ __forceinline__ float silu_slope(float x) {
  const float s = logistic<T>(x), silu = x * s;
  return s + silu * (1.0F - s);
}

template <class T>
__device__ __forceinline__ float slope_of(ActivationKind kind, float x) {
  switch (kind) {
    case ActivationKind::GeluTanh: {
      const float t = hyperbolic_tangent<T>(kRoot * (x + kCubic * x * x * x));
      const float steep = kRoot * (1.0F + 3.0F * kCubic * x * x);
      return 0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * steep;
    }
    case ActivationKind::GeluExact:
      return normal_share(x) + x * 0.3989422804014327F * exponential<T>(-0.5F * x * x);
    case ActivationKind::QuickGelu:
      return silu_slope<T>(kSteepness * x);
    case ActivationKind::Relu:
      return x > 0 ? 1.0F : 0.0F;
    case ActivationKind::Relu2:
      return x > 0 ? 2.0F * x : 0.0F;
    case ActivationKind::Silu:
      return silu_slope<T>(x);
    case ActivationKind::Tanh: {
      const float t = hyperbolic_tangent<T>(x);
      return 1.0F - t * t;
    }
  }
  return 0;
}

template <class T, int V>
struct Activation {
  ActivationKind kind;
  const T* u;
  T* g;
  __device__ void operator()(std::int64_t i) const {
    float v[V];
    load(u + i, v);
#pragma unroll
    for (int k = 0; k < V; ++k) v[k] = value_of<T>(kind, v[k]);
    store(g + i, v);
  }
};

template <class T, int V>
struct ActivationBackward {
  ActivationKind kind;
  const T *dg, *u;
  T* du;
  __device__ void operator()(std::int64_t i) const {
    float v[V], d[V];
    load(u + i, v);
    load(dg + i, d);
#pragma unroll
    for (int k = 0; k < V; ++k) d[k] *= slope_of<T>(kind, v[k]);
    store(du + i, d);
  }
};

template <class T, int V>
struct Gated {
  ActivationKind kind;
  std::int64_t f;
  const T* u;
  T* g;
  __device__ void operator()(std::int64_t i) const {
    const T* gate = u + i / f * 2 * f + i % f;
    float a[V], b[V];
    load(gate, a);
    load(gate + f, b);
#pragma unroll
    for (int k = 0; k < V; ++k) b[k] *= value_of<T>(kind, a[k]);
    store(g + i, b);
  }
};

template <class T, int V>
struct GatedBackward {
  ActivationKind kind;
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
      const float value = value_of<T>(kind, a[k]);
      a[k] = d[k] * b[k] * slope_of<T>(kind, a[k]);
      b[k] = d[k] * value;
    }
    store(du + at, a);
    store(du + at + f, b);
  }
};

}  // namespace

int activation(Stream stream, Type type, ActivationKind kind, std::int64_t count, const void* u,
               void* g) {
  return with_width(type, count, {u, g}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return for_each<V>(stream, count,
                       Activation<T, V>{kind, static_cast<const T*>(u), static_cast<T*>(g)});
  });
}

int activation_backward(Stream stream, Type type, ActivationKind kind, std::int64_t count,
                        const void* dg, const void* u, void* du) {
  return with_width(type, count, {dg, u, du}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return for_each<V>(stream, count,
                       ActivationBackward<T, V>{kind, static_cast<const T*>(dg),
                                                static_cast<const T*>(u), static_cast<T*>(du)});
  });
}

int gated(Stream stream, Type type, ActivationKind kind, std::int64_t rows, std::int64_t f,
          const void* u, void* g) {
  return with_width(type, f, {u, g}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return for_each<V>(stream, rows * f,
                       Gated<T, V>{kind, f, static_cast<const T*>(u), static_cast<T*>(g)});
  });
}

int gated_backward(Stream stream, Type type, ActivationKind kind, std::int64_t rows, std::int64_t f,
                   const void* dg, const void* u, void* du) {
  return with_width(type, f, {dg, u, du}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return for_each<V>(stream, rows * f,
                       GatedBackward<T, V>{kind, f, static_cast<const T*>(dg),
                                           static_cast<const T*>(u), static_cast<T*>(du)});
  });
}

}  // namespace rehearse::exec::cuda
