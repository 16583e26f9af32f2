// SPDX-License-Identifier: Apache-2.0
// Grouped products of 16 bits on tensor cores, by mma.sync (sm_80 and later): tiles of 128 x 128,
// each of 8 warps has 64 x 32 of it, a depth of 64 is read while the one before is multiplied.
#pragma once

#include "exec/cuda/kernels/attention/attention_tiles.cuh"
#include "exec/cuda/kernels/experts/grouped.cuh"

namespace rehearse::exec::cuda {

constexpr int kMmaTile = 128, kMmaDepth = 64, kMmaThreads = 256, kMmaStages = 2;
constexpr int kMmaOperandBytes = kMmaTile * kMmaDepth * 2;
constexpr int kWarpRows = 64, kWarpColumns = 32;  // of a warp's part of the tile

// A tile of an operand: its rows (a's rows, b's columns) with the depth along them, or across.
template <bool kAcross>
using OperandTile = Tile<kAcross ? kMmaDepth : kMmaTile, kAcross ? kMmaTile : kMmaDepth>;

template <bool kAcross, class T>
__device__ __forceinline__ void start_operand(OperandTile<kAcross> to, const T* from,
                                              std::int64_t stride, int rows, std::int64_t depth,
                                              std::int64_t whole) {
  const int left = at_most_of(whole - depth, kMmaDepth);
  if constexpr (kAcross) {
    start_tile<kMmaThreads>(to, from + depth * stride, stride, left, rows);
  } else {
    start_tile<kMmaThreads>(to, from + depth, stride, rows, left);
  }
}

// Fragments of rows [row, row + 16) and depths [16 i, 16 i + 16): of a its four matrices in the
// order of ptx.cuh; of b two pairs, each of 8 columns.
template <bool kAcross, bool kOfB>
__device__ __forceinline__ void read_operand(std::uint32_t (&out)[4], OperandTile<kAcross> from,
                                             int row, int i) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, matrix = lane / 8;
  const int low = matrix % 2, high = matrix / 2;
  const int rows = row + 8 * (kOfB ? high : low), depth = 16 * i + 8 * (kOfB ? low : high);
  if constexpr (kAcross) {
    load_transposed(out, from.chunk(depth + lane % 8, rows / 8));
  } else {
    load_matrices(out, from.chunk(rows + lane % 8, depth / 8));
  }
}

template <class Product>
__global__ void __launch_bounds__(kMmaThreads, 2) grouped_mma_kernel(Product product) {
  typename Product::Work work;
  if (!product.template find<kMmaTile, kMmaTile>(work)) return;
  const Shared room = shared_address(dynamic_shared());
  const auto a_at = [&](std::int64_t step) {
    const auto stage = static_cast<Shared>(step % kMmaStages);
    return OperandTile<Product::kAcrossA>{room + stage * 2 * kMmaOperandBytes};
  };
  const auto b_at = [&](std::int64_t step) {
    const auto stage = static_cast<Shared>(step % kMmaStages);
    return OperandTile<Product::kAcrossB>{room + (stage * 2 + 1) * kMmaOperandBytes};
  };
  const std::int64_t steps = (work.depth + kMmaDepth - 1) / kMmaDepth;
  const auto start = [&](std::int64_t step) {
    if (step < steps) {
      start_operand<Product::kAcrossA>(a_at(step), work.a, work.a_stride, work.rows,
                                       step * kMmaDepth, work.depth);
      start_operand<Product::kAcrossB>(b_at(step), work.b, work.b_stride, work.columns,
                                       step * kMmaDepth, work.depth);
    }
    end_group();
  };

  constexpr int kM = kWarpRows / 16, kN = kWarpColumns;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int row = warp % 2 * kWarpRows, column = warp / 2 * kWarpColumns;
  Fragments<kM, kN> c;
  clear<kM, kN>(c);
  start(0);
  for (std::int64_t step = 0; step < steps; ++step) {
    start(step + 1);
    wait_groups<1>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kMmaDepth / 16; ++i) {
      std::uint32_t left[kM][4];
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        read_operand<Product::kAcrossA, false>(left[m], a_at(step), row + 16 * m, i);
      }
#pragma unroll
      for (int n = 0; n < kN / 16; ++n) {
        std::uint32_t right[4];
        read_operand<Product::kAcrossB, true>(right, b_at(step), column + 16 * n, i);
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          mma<typename Product::T>(c[m][2 * n], left[m], right[0], right[1]);
          mma<typename Product::T>(c[m][2 * n + 1], left[m], right[2], right[3]);
        }
      }
    }
    __syncthreads();
  }

  // Half of the rows at a time: all that is there is read before a sum is written, in one wait.
  const int lane = static_cast<int>(threadIdx.x) % kWarp, g = lane / 4, t = lane % 4;
  constexpr int kAtOnce = kM / 2;
#pragma unroll
  for (int first = 0; first < kM; first += kAtOnce) {
    float2 sum[kAtOnce][2][kN / 8];
    const auto each = [&](auto f) {  // f(m, half, n, row, column) of those that are there
#pragma unroll
      for (int m = 0; m < kAtOnce; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int r = row + 16 * (first + m) + 8 * half + g;
#pragma unroll
          for (int n = 0; n < kN / 8; ++n) {
            const int at = column + 8 * n + 2 * t;
            if (r < work.rows && at < work.columns) f(m, half, n, r, at);
          }
        }
      }
    };
    each([&](int m, int half, int n, int r, int at) { sum[m][half][n] = work.out.before(r, at); });
    each([&](int m, int half, int n, int r, int at) {
      const float2 before = sum[m][half][n];
      work.out.two(r, at,
                   make_float2(before.x + c[first + m][n][2 * half],
                               before.y + c[first + m][n][2 * half + 1]));
    });
  }
}

template <class Product>
int launch_mma(Stream stream, const Product& product) {
  return launch(grouped_mma_kernel<Product>, product.grid(kMmaTile, kMmaTile), kMmaThreads,
                kMmaStages * 2 * kMmaOperandBytes, stream, product);
}

}  // namespace rehearse::exec::cuda
