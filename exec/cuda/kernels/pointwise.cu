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

// out(rows, cols) = x + dropped (y + bias(cols)); x and bias may be null.
template <class T>
struct DropCall {
  std::int64_t rows = 0, cols = 0;
  DropoutShape shape;
  const T *x = nullptr, *y = nullptr, *bias = nullptr;
  T* out = nullptr;
};

// 8 lanes for 64 columns of a row, so that a warp's access is one stretch of memory; of so many
// rows, `apart` from one another.
constexpr int kDropLanes = 8, kDropColumns = 64, kDropThreads = 256, kDropRows = 2;
template <class T, int V>
__global__ void __launch_bounds__(kDropThreads)
    drop_kernel(DropCall<T> call, std::uint32_t runs, std::uint32_t apart) {
  constexpr int kPieces = 8 / V;
  const std::uint32_t number = blockIdx.x * (kDropThreads / kDropLanes) + threadIdx.x / kDropLanes;
  const std::uint32_t row = number / runs, run = number - row * runs;
  const std::int64_t first = run * kDropColumns + threadIdx.x % kDropLanes * V;
  const auto column = [&](int q) { return first + q * kDropLanes * V; };
  const auto here = [&](int r, int q) {
    return row < apart && row + r * apart < call.rows && column(q) < call.cols;
  };
  const auto place = [&](int r, int q) { return (row + r * apart) * call.cols + column(q); };
  Raw<T, V> y[kDropRows][kPieces], x[kDropRows][kPieces];
#pragma unroll
  for (int r = 0; r < kDropRows; ++r) {
#pragma unroll
    for (int q = 0; q < kPieces; ++q) {
      if (!here(r, q)) continue;
      y[r][q] = load_raw<T, V>(call.y + place(r, q));
      if (call.x != nullptr) x[r][q] = load_raw<T, V>(call.x + place(r, q));
    }
  }
#pragma unroll
  for (int r = 0; r < kDropRows; ++r) {
    std::uint32_t bits[kPieces];
    kept_by_lanes<V>(call.shape, row + r * apart, run, bits);
#pragma unroll
    for (int q = 0; q < kPieces; ++q) {
      if (!here(r, q)) continue;
      float sum[V], v[V] = {};
      widen_all<T>(y[r][q], sum);
      if (call.bias != nullptr) load(call.bias + column(q), v);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        sum[k] = (sum[k] + v[k]) * ((bits[q] >> k & 1) != 0 ? call.shape.scale : 0.0F);
      }
      if (call.x != nullptr) {
        widen_all<T>(x[r][q], v);
#pragma unroll
        for (int k = 0; k < V; ++k) sum[k] += v[k];
      }
      store(call.out + place(r, q), sum);
    }
  }
}

int drop(Stream stream, Type type, std::int64_t rows, std::int64_t cols, const DropoutShape& shape,
         const void* x, const void* y, const void* bias, void* out) {
  const std::int64_t apart = (rows + kDropRows - 1) / kDropRows;
  const std::int64_t runs = (cols + kDropColumns - 1) / kDropColumns;
  if (apart * runs > INT32_MAX || rows > INT32_MAX) return kInvalidValue;
  return with_width(type, cols, {x, y, bias, out}, [&](auto zero, auto width) {
    using T = decltype(zero);
    return launch(drop_kernel<T, decltype(width)::value>,
                  dim3(blocks(apart * runs, kDropThreads / kDropLanes)), kDropThreads, 0, stream,
                  DropCall<T>{.rows = rows,
                              .cols = cols,
                              .shape = shape,
                              .x = static_cast<const T*>(x),
                              .y = static_cast<const T*>(y),
                              .bias = static_cast<const T*>(bias),
                              .out = static_cast<T*>(out)},
                  static_cast<std::uint32_t>(runs), static_cast<std::uint32_t>(apart));
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
