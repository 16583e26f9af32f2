// SPDX-License-Identifier: Apache-2.0
// Grouped products in fp32 arithmetic, of any type, size and alignment: what fp32 runs, and bf16
// where tensor cores cannot. 16 sums for each thread, a depth of 16 in shared memory.
#pragma once

#include "exec/cuda/kernels/experts/grouped.cuh"

namespace rehearse::exec::cuda {

constexpr int kExactTile = 64, kExactDepth = 16, kExactThreads = 256;

// room(kExactDepth, kExactTile) = elements (row or column, i) from `depth` on; zeros beyond.
template <bool kAcross, class T>
__device__ __forceinline__ void read_tile(const T* from, std::int64_t stride, int valid,
                                          std::int64_t depth, std::int64_t whole,
                                          float (*room)[kExactTile + 1]) {
#pragma unroll
  for (int n = 0; n < kExactTile * kExactDepth / kExactThreads; ++n) {
    const int place = n * kExactThreads + static_cast<int>(threadIdx.x);
    const int row = kAcross ? place % kExactTile : place / kExactDepth;
    const int i = kAcross ? place / kExactTile : place % kExactDepth;
    float value = 0;
    if (row < valid && depth + i < whole) {
      value = widen(kAcross ? from[(depth + i) * stride + row] : from[row * stride + depth + i]);
    }
    room[i][row] = value;
  }
}

template <class Product>
__global__ void __launch_bounds__(kExactThreads) grouped_exact_kernel(Product product) {
  __shared__ float a[kExactDepth][kExactTile + 1];
  __shared__ float b[kExactDepth][kExactTile + 1];
  typename Product::Work work;
  if (!product.template find<kExactTile, kExactTile>(work)) return;
  const int row = static_cast<int>(threadIdx.x) / 16, column = static_cast<int>(threadIdx.x) % 16;
  float sum[4][4] = {};
  for (std::int64_t depth = 0; depth < work.depth; depth += kExactDepth) {
    __syncthreads();
    read_tile<Product::kAcrossA>(work.a, work.a_stride, work.rows, depth, work.depth, a);
    read_tile<Product::kAcrossB>(work.b, work.b_stride, work.columns, depth, work.depth, b);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kExactDepth; ++i) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int c = 0; c < 4; ++c) sum[r][c] += a[i][row + 16 * r] * b[i][column + 16 * c];
      }
    }
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      if (row + 16 * r < work.rows && column + 16 * c < work.columns) {
        work.out.one(row + 16 * r, column + 16 * c, sum[r][c]);
      }
    }
  }
}

template <class Product>
int launch_exact(Stream stream, const Product& product) {
  return launch(grouped_exact_kernel<Product>, product.grid(kExactTile, kExactTile), kExactThreads,
                0, stream, product);
}

}  // namespace rehearse::exec::cuda
