// SPDX-License-Identifier: Apache-2.0
// What a block of a grouped product computes: one tile of one expert's product, c = a b, whose
// sums run over `depth`. Which tile it is, the block reads on the device: a launch has as many
// blocks as there can be tiles, those that have none leave, and no host knows the counts.
#pragma once

#include "exec/cuda/kernels/device.cuh"

namespace rehearse::exec::cuda {

// c(rows, columns) to a matrix of T, plus bias(columns), which may be null.
template <class T>
struct Write {
  T* to = nullptr;
  const T* bias = nullptr;
  std::int64_t stride = 0;
  __device__ __forceinline__ void one(int row, int column, float value) const {
    if (bias != nullptr) value += widen(bias[column]);
    to[row * stride + column] = narrow<T>(value);
  }
  // Two neighbouring columns: what is added to them, and the sum. REQUIRES: T has 16 bits, column
  // and stride are even
  __device__ __forceinline__ float2 before(int, int column) const {
    return bias == nullptr ? make_float2(0, 0)
                           : make_float2(widen(bias[column]), widen(bias[column + 1]));
  }
  __device__ __forceinline__ void two(int row, int column, float2 sum) const {
    *reinterpret_cast<std::uint32_t*>(to + row * stride + column) = pack<T>(sum.x, sum.y);
  }
};
// Likewise, added to fp32.
struct Accumulate {
  float* to = nullptr;
  std::int64_t stride = 0;
  __device__ __forceinline__ void one(int row, int column, float value) const {
    to[row * stride + column] += value;
  }
  __device__ __forceinline__ float2 before(int row, int column) const {
    return *reinterpret_cast<const float2*>(to + row * stride + column);
  }
  __device__ __forceinline__ void two(int row, int column, float2 sum) const {
    *reinterpret_cast<float2*>(to + row * stride + column) = sum;
  }
};

// Operand a is a(row, i) = a[row * a_stride + i], or where the product's kAcrossA, a[i * a_stride +
// row]; b(i, column) = b[column * b_stride + i], or where kAcrossB, b[i * b_stride + column].
template <class T, class Output>
struct TileWork {
  const T *a = nullptr, *b = nullptr;
  std::int64_t a_stride = 0, b_stride = 0, depth = 0;
  int rows = 0, columns = 0;  // of the tile's, those that are there
  Output out{};
};

__device__ __forceinline__ std::int64_t at_most(std::int64_t value, std::int64_t most) {
  return value < most ? value : most;
}
__device__ __forceinline__ int at_most_of(std::int64_t left, int most) {
  return left < most ? static_cast<int>(left) : most;
}

// y(rows, out) = x(rows, in) times the matrix of each row's expert: w(experts, out, in), or where
// kBackward, w(experts, in, out). Blocks: (row tiles, column tiles).
template <class T_, bool kBackward>
struct RowsTimesMatrix {
  using T = T_;
  using Work = TileWork<T, Write<T>>;
  static constexpr bool kAcrossA = false, kAcrossB = kBackward;
  GroupedShape shape;
  std::int64_t out = 0, in = 0;
  const T *x = nullptr, *w = nullptr, *bias = nullptr;  // bias(experts, out) may be null
  T* y = nullptr;

  // An expert's last tile may be in part empty: at most one more tile for each expert.
  dim3 grid(int tile_rows, int tile_columns) const {
    const std::int64_t tiles = shape.rows / tile_rows + shape.experts;
    return dim3(static_cast<unsigned>(tiles < shape.rows ? tiles : shape.rows),
                blocks(out, tile_columns));
  }
  template <int kRows, int kColumns>
  __device__ bool find(Work& work) const {
    std::int64_t tile = blockIdx.x;
    for (std::int64_t e = 0; e < shape.experts; ++e) {
      const std::int64_t begin = at_most(shape.begin[e], shape.rows);
      const std::int64_t rows = at_most(shape.begin[e + 1], shape.rows) - begin;
      const std::int64_t tiles = (rows + kRows - 1) / kRows;
      if (tile >= tiles) {
        tile -= tiles;
        continue;
      }
      const std::int64_t row = begin + tile * kRows;
      const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * kColumns;
      work.a = x + row * in;
      work.a_stride = in;
      work.b = w + e * out * in + (kBackward ? column : column * in);
      work.b_stride = kBackward ? out : in;
      work.depth = in;
      work.rows = at_most_of(rows - tile * kRows, kRows);
      work.columns = at_most_of(out - column, kColumns);
      work.out = {y + row * out + column, bias == nullptr ? nullptr : bias + e * out + column, out};
      return true;
    }
    return false;
  }
};

// dw(experts, n, k) += dy^T x over each expert's rows of dy(rows, n), x(rows, k). Blocks: (column
// tiles, row tiles, experts).
template <class T_>
struct RowsTimesRows {
  using T = T_;
  using Work = TileWork<T, Accumulate>;
  static constexpr bool kAcrossA = true, kAcrossB = true;
  GroupedShape shape;
  std::int64_t n = 0, k = 0;
  const T *dy = nullptr, *x = nullptr;
  float* dw = nullptr;

  dim3 grid(int tile_rows, int tile_columns) const {
    return dim3(blocks(k, tile_columns), blocks(n, tile_rows),
                static_cast<unsigned>(shape.experts));
  }
  template <int kRows, int kColumns>
  __device__ bool find(Work& work) const {
    const std::int64_t e = blockIdx.z;
    const std::int64_t begin = at_most(shape.begin[e], shape.rows);
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kRows;
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumns;
    work.a = dy + begin * n + row;
    work.a_stride = n;
    work.b = x + begin * k + column;
    work.b_stride = k;
    work.depth = at_most(shape.begin[e + 1], shape.rows) - begin;
    work.rows = at_most_of(n - row, kRows);
    work.columns = at_most_of(k - column, kColumns);
    work.out = {dw + (e * n + row) * k + column, k};
    return work.depth > 0;
  }
};

}  // namespace rehearse::exec::cuda
