// SPDX-License-Identifier: Apache-2.0
// Rows to their experts and back, weighted sums of a token's copies, and gates: each reads its rows
// once, 16 bytes at a time.
#include "exec/cuda/kernels/pointwise.cuh"

namespace rehearse::exec::cuda {
namespace {

constexpr int kWarps = 4;  // rows or copies of a block whose products are summed

// y(count, cols): row i is row from(i) of x, where kTo, row to(i) is row i of x. V elements at
// once, bit for bit: fp32 numbers move as pairs of bf16.
template <class T, int V, bool kTo>
struct MoveRows {
  using Bits = std::conditional_t<V == 1, T, uint4>;
  std::int64_t cols;
  const std::int32_t* at;
  const T* x;
  T* y;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t row = i / cols, other = at[row];
    if (other < 0) return;
    const std::int64_t there = other * cols + i % cols;
    *reinterpret_cast<Bits*>(y + (kTo ? there : i)) =
        *reinterpret_cast<const Bits*>(x + (kTo ? i : there));
  }
};

template <bool kTo>
int move_rows(Stream stream, Type type, std::int64_t count, std::int64_t cols,
              const std::int32_t* at, const void* x, void* y) {
  return with_width(type, cols, {x, y}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return for_each<V>(stream, count * cols,
                       MoveRows<T, V, kTo>{cols, at, static_cast<const T*>(x), static_cast<T*>(y)});
  });
}

// In the order of a token's copies.
template <class T, int V>
struct WeighCopies {
  std::int64_t per_token, cols;
  const std::int32_t* row;
  const float* weights;
  const T* rows;
  T* y;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t token = i / cols;
    float sum[V] = {};
    for (std::int64_t k = token * per_token; k < (token + 1) * per_token; ++k) {
      if (row[k] < 0) continue;
      const float weight = weights == nullptr ? 1.0F : weights[k];
      float v[V];
      load(rows + row[k] * cols + i % cols, v);
#pragma unroll
      for (int c = 0; c < V; ++c) sum[c] += weight * v[c];
    }
    store(y + i, sum);
  }
};

// A warp's sum over the columns of a row of a b, and write(column, v) for what else becomes of b.
template <class T, int V, class Write>
__device__ __forceinline__ float row_product(std::int64_t cols, const T* a, const T* b,
                                             Write write) {
  float sum = 0;
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x % kWarp) * V; c < cols;
       c += kWarp * V) {
    float u[V], v[V];
    load(a + c, u);
    load(b + c, v);
#pragma unroll
    for (int k = 0; k < V; ++k) sum += u[k] * v[k];
    write(c, v);
  }
  return static_cast<float>(over_warp<Add>(static_cast<double>(sum)));
}

// A warp for each copy; d_rows or d_weights may be null, rows with d_weights.
template <class T, int V>
__global__ void __launch_bounds__(kWarps* kWarp)
    weigh_backward_kernel(std::int64_t copies, std::int64_t per_token, std::int64_t cols,
                          const std::int32_t* __restrict__ row, const float* __restrict__ weights,
                          const T* __restrict__ rows, const T* __restrict__ dy,
                          T* __restrict__ d_rows, float* __restrict__ d_weights) {
  const std::int64_t copy = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (copy >= copies) return;
  const std::int64_t at = row[copy];
  float product = 0;
  if (at >= 0) {
    const T* const own = dy + copy / per_token * cols;
    const float weight = d_rows == nullptr ? 0.0F : weights[copy];
    product = row_product<T, V>(cols, d_weights == nullptr ? own : rows + at * cols, own,
                                [&](std::int64_t c, float(&v)[V]) {
                                  if (d_rows == nullptr) return;
#pragma unroll
                                  for (int k = 0; k < V; ++k) v[k] *= weight;
                                  store(d_rows + at * cols + c, v);
                                });
  }
  if (d_weights != nullptr && threadIdx.x % kWarp == 0) d_weights[copy] = product;
}

__device__ __forceinline__ float logistic(float x) {
  return 1.0F / (1.0F + expf(-x));
}

template <class T, int V>
struct Gate {
  std::int64_t cols;
  const T *g, *x;
  T* y;
  __device__ void operator()(std::int64_t i) const {
    const float s = logistic(widen(g[i / cols]));
    float v[V];
    load(x + i, v);
#pragma unroll
    for (int k = 0; k < V; ++k) v[k] *= s;
    store(y + i, v);
  }
};

// u(rows, f, 2) has gate and up in turns: the gate clamped from above, and up, clamped on both
// sides, of V columns.
template <class T, int V>
struct ClampedPair {
  float gate[V], up[V], gate_seen[V], up_seen[V];  // seen: 0 where a clamp holds
  __device__ ClampedPair(const ClampedGlu& s, const T* u, std::int64_t i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float both[V];
      load(u + 2 * i + half * V, both);
      if constexpr (V == 1) {
        (half == 0 ? gate : up)[0] = both[0];
      } else {
#pragma unroll
        for (int k = 0; k < V / 2; ++k) {
          gate[half * V / 2 + k] = both[2 * k];
          up[half * V / 2 + k] = both[2 * k + 1];
        }
      }
    }
#pragma unroll
    for (int k = 0; k < V; ++k) {
      gate_seen[k] = gate[k] > s.limit ? 0.0F : 1.0F;
      up_seen[k] = fabsf(up[k]) > s.limit ? 0.0F : 1.0F;
      gate[k] = fminf(gate[k], s.limit);
      up[k] = fmaxf(fminf(up[k], s.limit), -s.limit);
    }
  }
};

template <class T, int V>
struct Clamped {
  ClampedGlu shape;
  const T* u;
  T* g;
  __device__ void operator()(std::int64_t i) const {
    const ClampedPair<T, V> of(shape, u, i);
    float v[V];
#pragma unroll
    for (int k = 0; k < V; ++k) {
      v[k] = (of.up[k] + 1.0F) * of.gate[k] * logistic(shape.alpha * of.gate[k]);
    }
    store(g + i, v);
  }
};

// d gate = (up + 1) S (1 + alpha gate (1 - S)), d up = gate S, with S the sigmoid of alpha gate.
template <class T, int V>
struct ClampedBackward {
  ClampedGlu shape;
  const T *dg, *u;
  T* du;
  __device__ void operator()(std::int64_t i) const {
    const ClampedPair<T, V> of(shape, u, i);
    float d[V], both[2 * V];
    load(dg + i, d);
#pragma unroll
    for (int k = 0; k < V; ++k) {
      const float part = logistic(shape.alpha * of.gate[k]);
      const float slope =
          (of.up[k] + 1.0F) * part * (1.0F + shape.alpha * of.gate[k] * (1.0F - part));
      both[2 * k] = of.gate_seen[k] * d[k] * slope;
      both[2 * k + 1] = of.up_seen[k] * d[k] * of.gate[k] * part;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float v[V];
#pragma unroll
      for (int k = 0; k < V; ++k) v[k] = both[half * V + k];
      store(du + 2 * i + half * V, v);
    }
  }
};

// A warp for each row.
template <class T, int V>
__global__ void __launch_bounds__(kWarps* kWarp)
    gate_backward_kernel(std::int64_t rows, std::int64_t cols, const T* __restrict__ g,
                         const T* __restrict__ x, const T* __restrict__ dy, T* __restrict__ dg,
                         T* __restrict__ dx) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  if (row >= rows) return;
  const float s = logistic(widen(g[row]));
  const float product =
      row_product<T, V>(cols, x + row * cols, dy + row * cols, [&](std::int64_t c, float(&v)[V]) {
#pragma unroll
        for (int k = 0; k < V; ++k) v[k] *= s;
        store(dx + row * cols + c, v);
      });
  if (threadIdx.x % kWarp == 0) dg[row] = narrow<T>(s * (1.0F - s) * product);
}

}  // namespace

int gather_rows(Stream stream, Type type, std::int64_t count, std::int64_t cols,
                const std::int32_t* from, const void* x, void* y) {
  return move_rows<false>(stream, type, count, cols, from, x, y);
}

int scatter_rows(Stream stream, Type type, std::int64_t count, std::int64_t cols,
                 const std::int32_t* to, const void* x, void* y) {
  return move_rows<true>(stream, type, count, cols, to, x, y);
}

int weigh_copies(Stream stream, Type type, std::int64_t tokens, std::int64_t per_token,
                 std::int64_t cols, const std::int32_t* row, const float* weights, const void* rows,
                 void* y) {
  return with_width(type, cols, {rows, y}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return for_each<V>(stream, tokens * cols,
                       WeighCopies<T, V>{per_token, cols, row, weights, static_cast<const T*>(rows),
                                         static_cast<T*>(y)});
  });
}

int weigh_backward(Stream stream, Type type, std::int64_t tokens, std::int64_t per_token,
                   std::int64_t cols, const std::int32_t* row, const float* weights,
                   const void* rows, const void* dy, void* d_rows, float* d_weights) {
  return with_width(type, cols, {rows, dy, d_rows}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    const std::int64_t copies = tokens * per_token;
    return launch(weigh_backward_kernel<T, V>, dim3(blocks(copies, kWarps)), kWarps * kWarp, 0,
                  stream, copies, per_token, cols, row, weights, static_cast<const T*>(rows),
                  static_cast<const T*>(dy), static_cast<T*>(d_rows), d_weights);
  });
}

int gate(Stream stream, Type type, std::int64_t rows, std::int64_t cols, const void* g,
         const void* x, void* y) {
  return with_width(type, cols, {x, y}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return for_each<V>(
        stream, rows * cols,
        Gate<T, V>{cols, static_cast<const T*>(g), static_cast<const T*>(x), static_cast<T*>(y)});
  });
}

int gate_backward(Stream stream, Type type, std::int64_t rows, std::int64_t cols, const void* g,
                  const void* x, const void* dy, void* dg, void* dx) {
  return with_width(type, cols, {x, dy, dx}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return launch(gate_backward_kernel<T, V>, dim3(blocks(rows, kWarps)), kWarps * kWarp, 0, stream,
                  rows, cols, static_cast<const T*>(g), static_cast<const T*>(x),
                  static_cast<const T*>(dy), static_cast<T*>(dg), static_cast<T*>(dx));
  });
}

int clamped_glu(Stream stream, Type type, const ClampedGlu& shape, const void* u, void* g) {
  return with_width(type, shape.f, {u, g}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return for_each<V>(stream, shape.rows * shape.f,
                       Clamped<T, V>{shape, static_cast<const T*>(u), static_cast<T*>(g)});
  });
}

int clamped_glu_backward(Stream stream, Type type, const ClampedGlu& shape, const void* dg,
                         const void* u, void* du) {
  return with_width(type, shape.f, {dg, u, du}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return for_each<V>(stream, shape.rows * shape.f,
                       ClampedBackward<T, V>{shape, static_cast<const T*>(dg),
                                             static_cast<const T*>(u), static_cast<T*>(du)});
  });
}

}  // namespace rehearse::exec::cuda
