// SPDX-License-Identifier: Apache-2.0
// Grouped products, and the gradients of the experts' biases. Which engine multiplies depends on
// type and alignment alone; a result depends on its own row and matrix, or rows, and on nothing
// else: not on how many there are beside.
#include "exec/cuda/kernels/experts/grouped_exact.cuh"
#include "exec/cuda/kernels/experts/grouped_mma.cuh"

namespace rehearse::exec::cuda {
namespace {

// REQUIRES: n and k are the lengths of all matrices' rows.
template <class Product>
int multiply(Stream stream, std::int64_t n, std::int64_t k, std::initializer_list<const void*> all,
             const Product& product) {
  if constexpr (kSixteenBits<typename Product::T>) {
    if (vectorises<Bf16>(n, all) && vectorises<Bf16>(k, all)) return launch_mma(stream, product);
  }
  return launch_exact(stream, product);
}

constexpr int kSumWarps = 8;

// A block has 32 columns of an expert, its warps every eighth row.
template <class T>
__global__ void __launch_bounds__(kSumWarps* kWarp)
    grouped_column_sums_kernel(GroupedShape s, std::int64_t cols, const T* __restrict__ y,
                               float* __restrict__ sums) {
  __shared__ double room[kSumWarps][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + lane;
  const std::int64_t e = blockIdx.y;
  const std::int64_t end = at_most(s.begin[e + 1], s.rows);
  double sum = 0;
  if (column < cols) {
    for (std::int64_t row = at_most(s.begin[e], s.rows) + warp; row < end; row += kSumWarps) {
      sum += static_cast<double>(widen(y[row * cols + column]));
    }
  }
  room[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= cols) return;
  for (int w = 1; w < kSumWarps; ++w) sum += room[w][lane];
  sums[e * cols + column] += static_cast<float>(sum);
}

}  // namespace

int grouped_linear(Stream stream, Type type, const GroupedShape& shape, std::int64_t n,
                   std::int64_t k, const void* x, const void* w, const void* bias, void* y) {
  return with_type(type, [&](auto zero) {
    using T = decltype(zero);
    const RowsTimesMatrix<T, false> product{shape,
                                            n,
                                            k,
                                            static_cast<const T*>(x),
                                            static_cast<const T*>(w),
                                            static_cast<const T*>(bias),
                                            static_cast<T*>(y)};
    return multiply(stream, n, k, {x, w, y}, product);
  });
}

int grouped_linear_input(Stream stream, Type type, const GroupedShape& shape, std::int64_t n,
                         std::int64_t k, const void* dy, const void* w, void* dx) {
  return with_type(type, [&](auto zero) {
    using T = decltype(zero);
    const RowsTimesMatrix<T, true> product{shape,
                                           k,
                                           n,
                                           static_cast<const T*>(dy),
                                           static_cast<const T*>(w),
                                           nullptr,
                                           static_cast<T*>(dx)};
    return multiply(stream, n, k, {dy, w, dx}, product);
  });
}

int grouped_linear_weight(Stream stream, Type type, const GroupedShape& shape, std::int64_t n,
                          std::int64_t k, const void* dy, const void* x, float* dw) {
  return with_type(type, [&](auto zero) {
    using T = decltype(zero);
    const RowsTimesRows<T> product{shape, n, k, static_cast<const T*>(dy), static_cast<const T*>(x),
                                   dw};
    return multiply(stream, n, k, {dy, x, dw}, product);
  });
}

int grouped_column_sums(Stream stream, Type type, const GroupedShape& shape, std::int64_t cols,
                        const void* y, float* sums) {
  return with_type(type, [&](auto zero) {
    using T = decltype(zero);
    return launch(grouped_column_sums_kernel<T>,
                  dim3(blocks(cols, kWarp), static_cast<unsigned>(shape.experts)),
                  kSumWarps * kWarp, 0, stream, shape, cols, static_cast<const T*>(y), sums);
  });
}

}  // namespace rehearse::exec::cuda
