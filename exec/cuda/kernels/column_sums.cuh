// SPDX-License-Identifier: Apache-2.0
// Sums over rows, column by column, added to an fp32 gradient: bias gradients and those of norms'
// parameters. Two stages in a fixed order, in fp64: parts of the rows, then the parts.
#pragma once

#include "exec/cuda/kernels/device.cuh"

namespace rehearse::exec::cuda {

constexpr int kSumRows = 8;  // rows that a block adds side by side; its warps

// Parts that the rows are cut into: enough blocks to fill a GPU, at least 32 rows each.
inline std::int64_t row_parts(std::int64_t rows, std::int64_t columns) {
  const std::int64_t tiles = (columns + 127) / 128;
  const std::int64_t wanted = (512 + tiles - 1) / tiles, most = (rows + 31) / 32;
  const std::int64_t parts = wanted < most ? wanted : most;
  return parts < 1 ? 1 : parts > 128 ? 128 : parts;
}

// Term: kOutputs sums at once; term(row, column, value[kOutputs][V]) gives what V columns add.
// partials(kOutputs, parts, columns)
template <int V, class Term>
__global__ void __launch_bounds__(kSumRows* kWarp)
    column_partials_kernel(std::int64_t rows, std::int64_t columns, std::int64_t rows_per_part,
                           Term term, double* __restrict__ partials) {
  constexpr int kOutputs = Term::kOutputs;
  __shared__ double room[kSumRows][kWarp * V];
  const int lane = static_cast<int>(threadIdx.x) % kWarp,
            warp = static_cast<int>(threadIdx.x) / kWarp;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * kWarp + lane) * V;
  const std::int64_t begin = blockIdx.y * rows_per_part;
  const std::int64_t end = begin + rows_per_part < rows ? begin + rows_per_part : rows;
  double sum[kOutputs][V] = {};
  if (column < columns) {
    for (std::int64_t row = begin + warp; row < end; row += kSumRows) {
      float value[kOutputs][V];
      term(row, column, value);
#pragma unroll
      for (int k = 0; k < kOutputs; ++k) {
#pragma unroll
        for (int i = 0; i < V; ++i) sum[k][i] += static_cast<double>(value[k][i]);
      }
    }
  }
#pragma unroll
  for (int k = 0; k < kOutputs; ++k) {
#pragma unroll
    for (int i = 0; i < V; ++i) room[warp][lane * V + i] = sum[k][i];
    __syncthreads();
    for (int c = static_cast<int>(threadIdx.x); c < kWarp * V; c += kSumRows * kWarp) {
      const std::int64_t to = static_cast<std::int64_t>(blockIdx.x) * kWarp * V + c;
      double total = 0;
      for (int w = 0; w < kSumRows; ++w) total += room[w][c];
      if (to < columns) {
        partials[(static_cast<std::int64_t>(k) * gridDim.y + blockIdx.y) * columns + to] = total;
      }
    }
    __syncthreads();
  }
}

// A block adds up partials(parts, columns) for its 32 columns; the loads of its warps overlap.
int add_partials(Stream stream, std::int64_t parts, std::int64_t columns, const double* partials,
                 float* sums);

// Both stages; sums[k] (may be null) receives output k.
template <int V, class Term>
int add_over_rows(Stream stream, std::int64_t rows, std::int64_t columns, Term term,
                  float* const (&sums)[Term::kOutputs], void* scratch) {
  if (rows == 0 || columns == 0) return 0;
  const std::int64_t parts = row_parts(rows, columns);
  auto* partials = static_cast<double*>(scratch);
  int status =
      launch(column_partials_kernel<V, Term>,
             dim3(blocks(columns, kWarp * V), static_cast<unsigned>(parts)), kSumRows * kWarp, 0,
             stream, rows, columns, (rows + parts - 1) / parts, term, partials);
  for (int k = 0; k < Term::kOutputs && status == 0; ++k) {
    if (sums[k] == nullptr) continue;
    status = add_partials(stream, parts, columns, partials + k * parts * columns, sums[k]);
  }
  return status;
}

}  // namespace rehearse::exec::cuda
