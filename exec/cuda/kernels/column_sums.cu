// SPDX-License-Identifier: Apache-2.0
// Bias gradients, and the second stage of all column sums.
#include "exec/cuda/kernels/column_sums.cuh"

namespace rehearse::exec::cuda {
namespace {

template <class T, int V>
struct Plain {
  static constexpr int kOutputs = 1;
  const T* y;
  std::int64_t columns;
  __device__ void operator()(std::int64_t row, std::int64_t column, float (&value)[1][V]) const {
    load(y + row * columns + column, value[0]);
  }
};

constexpr int kPartRows = 8;

__global__ void __launch_bounds__(kPartRows* kWarp)
    add_partials_kernel(std::int64_t parts, std::int64_t columns,
                        const double* __restrict__ partials, float* __restrict__ sums) {
  __shared__ double room[kPartRows][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + lane;
  double sum = 0;
  if (column < columns) {
    for (std::int64_t part = warp; part < parts; part += kPartRows) {
      sum += partials[part * columns + column];
    }
  }
  room[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= columns) return;
  for (int w = 1; w < kPartRows; ++w) sum += room[w][lane];
  sums[column] += static_cast<float>(sum);
}

}  // namespace

std::int64_t column_sums_scratch(std::int64_t rows, std::int64_t columns) {
  return row_parts(rows, columns) * columns * static_cast<std::int64_t>(sizeof(double));
}

int add_partials(Stream stream, std::int64_t parts, std::int64_t columns, const double* partials,
                 float* sums) {
  return launch(add_partials_kernel, dim3(blocks(columns, kWarp)), kPartRows * kWarp, 0, stream,
                parts, columns, partials, sums);
}

int add_column_sums(Stream stream, Type type, std::int64_t rows, std::int64_t cols, const void* y,
                    float* sums, void* scratch) {
  return with_width(type, cols, {y}, [&](auto zero, auto width) {
    using T = decltype(zero);
    constexpr int V = decltype(width)::value;
    return add_over_rows<V>(stream, rows, cols, Plain<T, V>{static_cast<const T*>(y), cols}, {sums},
                            scratch);
  });
}

}  // namespace rehearse::exec::cuda
