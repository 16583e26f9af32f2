// SPDX-License-Identifier: Apache-2.0
// Biases, residuals, positions, dropout and soft caps: each reads its operands once, 16 bytes at a
// time.
#include "exec/cuda/kernels/pointwise.cuh"
#include "exec/cuda/kernels/random.cuh"

namespace rehearse::exec::cuda {
namespace {

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

// out(rows, cols) = x + dropped (y + bias(cols)); x and bias may be null. A thread has V columns in
// each of the eight runs of 8 that a counter's words serve.
template <class T, int V>
struct Dropped {
  static constexpr int kParts = 8 / V;
  std::int64_t cols;
  DropoutShape shape;
  const T *x, *y, *bias;
  T* out;
  std::int64_t runs() const { return (cols + 63) / 64; }  // of a row
  __device__ void operator()(std::int64_t i) const {
    const int place = static_cast<int>(i % kParts) * V;
    const std::int64_t run = i / kParts % ((cols + 63) / 64), row = i / kParts / ((cols + 63) / 64);
    float factor[V][8];
#pragma unroll
    for (int k = 0; k < V; ++k) kept(shape, row, run, place + k, 0, factor[k]);
#pragma unroll
    for (int h = 0; h < 8; ++h) {
      const std::int64_t c = 64 * run + 8 * h + place;
      if (c >= cols) continue;
      float sum[V], v[V] = {};
      load(y + row * cols + c, sum);
      if (bias != nullptr) load(bias + c, v);
#pragma unroll
      for (int k = 0; k < V; ++k) sum[k] = (sum[k] + v[k]) * factor[k][h];
      if (x != nullptr) {
        load(x + row * cols + c, v);
#pragma unroll
        for (int k = 0; k < V; ++k) sum[k] += v[k];
      }
      store(out + row * cols + c, sum);
    }
  }
};

int drop(Stream stream, Type type, std::int64_t rows, std::int64_t cols, const DropoutShape& shape,
         const void* x, const void* y, const void* bias, void* out) {
  return with_width(type, cols, {x, y, bias, out}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    const Dropped<T, V> dropped{cols,
                                shape,
                                static_cast<const T*>(x),
                                static_cast<const T*>(y),
                                static_cast<const T*>(bias),
                                static_cast<T*>(out)};
    return for_each<1>(stream, rows * dropped.runs() * dropped.kParts, dropped);
  });
}

template <class T, int V>
struct Softcap {
  float cap;
  T* x;
  __device__ void operator()(std::int64_t i) const {
    float v[V];
    load(x + i, v);
#pragma unroll
    for (int k = 0; k < V; ++k) v[k] = cap * tanhf(v[k] / cap);
    store(x + i, v);
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
                 const void* y, const void* bias, const DropoutShape& dropout, void* out) {
  if (dropout.threshold > 0) return drop(stream, type, rows, cols, dropout, x, y, bias, out);
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

int dropout(Stream stream, Type type, std::int64_t rows, std::int64_t cols,
            const DropoutShape& shape, const void* x, void* y) {
  return drop(stream, type, rows, cols, shape, nullptr, x, nullptr, y);
}

int softcap(Stream stream, Type type, std::int64_t count, double cap, void* x) {
  return with_width(type, count, {x}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return for_each<V>(stream, count, Softcap<T, V>{static_cast<float>(cap), static_cast<T*>(x)});
  });
}

}  // namespace rehearse::exec::cuda
