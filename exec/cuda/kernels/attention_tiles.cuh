// Tiles of bf16 in shared memory and the two products that flash attention is made of, forward and
// backward: rows times rows (scores), and fragments times a tile (sums of rows).
#pragma once

#include "exec/cuda/kernels/attention.cuh"
#include "exec/cuda/kernels/ptx.cuh"

namespace rehearse::exec::cuda {

constexpr int kAttentionWarps = 4;
constexpr int kAttentionThreads = kAttentionWarps * kWarp;

// Rows of kDim elements, in chunks of 8 (16 bytes). Chunk c of row r lies where c ^ (r % 8) would,
// so that the 8 rows of a matrix, read by one ldmatrix, lie in different banks. REQUIRES: `at` is a
// multiple of 256 bytes, so that a chunk further right is an exclusive or away.
template <int kDim>
struct Tile {
  static constexpr int kChunks = kDim / 8;
  static constexpr int kRowBytes = kDim * 2;
  Shared at;
  __device__ __forceinline__ Shared chunk(int row, int c) const {
    return at + row * kRowBytes + (c ^ (row & 7)) * 16;
  }
};

// Starts copies of kRows rows; what lies beyond `valid` rows or `head_dim` columns becomes zero.
template <int kRows, int kDim>
__device__ __forceinline__ void start_tile(Tile<kDim> to, const Bf16* from, std::int64_t stride,
                                           int valid, int head_dim) {
  // A thread keeps its chunk, and its rows are equal modulo 8: one address, constant steps.
  constexpr int kStep = kAttentionThreads / Tile<kDim>::kChunks;
  static_assert(kStep % 8 == 0 && kRows % kStep == 0);
  const int row = static_cast<int>(threadIdx.x) / Tile<kDim>::kChunks;
  const int c = static_cast<int>(threadIdx.x) % Tile<kDim>::kChunks;
  const Shared at = to.chunk(row, c);
  from += row * stride + c * 8;
  if (c * 8 >= head_dim) valid = 0;
#pragma unroll
  for (int r = 0; r < kRows; r += kStep) {
    start_copy(at + r * to.kRowBytes, from, row + r < valid);
    from += kStep * stride;
  }
}

// kM row tiles of 16 by kN columns, as C fragments.
template <int kM, int kN>
using Fragments = float[kM][kN / 8][4];

template <int kM, int kN>
__device__ __forceinline__ void clear(Fragments<kM, kN>& c) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN / 8; ++n) c[m][n][0] = c[m][n][1] = c[m][n][2] = c[m][n][3] = 0;
  }
}

// c(16 kM, kN) = rows [a_row, a_row + 16 kM) of a times the kN rows of b: scores
template <int kM, int kN, int kDim>
__device__ __forceinline__ void rows_times_rows(Tile<kDim> a, int a_row, Tile<kDim> b,
                                                Fragments<kM, kN>& c) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, matrix = lane / 8, i = lane % 8;
  const Shared a_at = a.chunk(a_row + matrix % 2 * 8 + i, matrix / 2);
  const Shared b_at = b.chunk(matrix / 2 * 8 + i, matrix % 2);
  clear<kM, kN>(c);
#pragma unroll
  for (int k = 0; k < kDim / 16; ++k) {  // chunks 2 k and 2 k + 1
    std::uint32_t left[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) load_matrices(left[m], (a_at ^ (32 * k)) + 16 * m * a.kRowBytes);
#pragma unroll
    for (int n = 0; n < kN / 16; ++n) {
      std::uint32_t right[4];
      load_matrices(right, (b_at ^ (32 * k)) + 16 * n * b.kRowBytes);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        mma(c[m][2 * n], left[m], right[0], right[1]);
        mma(c[m][2 * n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

// c(16 kM, kDim) += p(16 kM, kN), rounded to bf16, times the kN rows of b
template <int kM, int kN, int kDim>
__device__ __forceinline__ void add_fragments_times_tile(const Fragments<kM, kN>& p, Tile<kDim> b,
                                                         Fragments<kM, kDim>& c) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, matrix = lane / 8, i = lane % 8;
  const Shared b_at = b.chunk(matrix % 2 * 8 + i, matrix / 2);
#pragma unroll
  for (int k = 0; k < kN / 16; ++k) {
    std::uint32_t left[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      left[m][0] = pack(p[m][2 * k][0], p[m][2 * k][1]);
      left[m][1] = pack(p[m][2 * k][2], p[m][2 * k][3]);
      left[m][2] = pack(p[m][2 * k + 1][0], p[m][2 * k + 1][1]);
      left[m][3] = pack(p[m][2 * k + 1][2], p[m][2 * k + 1][3]);
    }
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
      std::uint32_t right[4];
      load_transposed(right, (b_at ^ (32 * n)) + 16 * k * b.kRowBytes);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        mma(c[m][2 * n], left[m], right[0], right[1]);
        mma(c[m][2 * n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

// Writes a warp's 16 kM rows of c, row r times factor[r of the thread], 16 bytes at a time by way
// of the rows [row, row + 16 kM) of `room`, which only this warp uses.
template <int kM, int kDim>
__device__ __forceinline__ void write_fragments(const Fragments<kM, kDim>& c,
                                                const float (&factor)[kM][2], Tile<kDim> room,
                                                int row, Bf16* to, std::int64_t stride, int valid,
                                                int head_dim) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, g = lane / 4, t = lane % 4;
  __syncwarp();
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        store_word(
            room.chunk(row + 16 * m + 8 * half + g, n) + 4 * t,
            pack(c[m][n][2 * half] * factor[m][half], c[m][n][2 * half + 1] * factor[m][half]));
      }
    }
  }
  __syncwarp();
#pragma unroll 4
  for (int k = lane; k < 16 * kM * Tile<kDim>::kChunks; k += kWarp) {
    const int r = k / Tile<kDim>::kChunks, chunk = k % Tile<kDim>::kChunks;
    if (r < valid && chunk * 8 < head_dim) {
      *reinterpret_cast<uint4*>(to + r * stride + chunk * 8) =
          load_words(room.chunk(row + r, chunk));
    }
  }
}

// A warp's 16 kM rows of c, row r times now[r of the thread], onto rows of floats that count
// before[r]; where `first`, these are not read.
template <int kM, int kDim>
__device__ __forceinline__ void merge_fragments(const Fragments<kM, kDim>& c, bool first,
                                                const float (&before)[kM][2],
                                                const float (&now)[kM][2], float* to,
                                                std::int64_t stride, int valid, int head_dim) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = 16 * m + 8 * half + g;
      if (row >= valid) continue;
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        const int column = 8 * n + 2 * t;
        if (column >= head_dim) continue;
        auto* pair = reinterpret_cast<float2*>(to + row * stride + column);
        float2 sum = first ? make_float2(0, 0) : *pair;
        sum.x = sum.x * before[m][half] + c[m][n][2 * half] * now[m][half];
        sum.y = sum.y * before[m][half] + c[m][n][2 * half + 1] * now[m][half];
        *pair = sum;
      }
    }
  }
}

// 2^x to about 2 units in the last place; 0 for -infinity.
__device__ __forceinline__ float power_of_two(float x) {
#ifndef REHEARSE_CUDA_EMULATION
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

}  // namespace rehearse::exec::cuda
