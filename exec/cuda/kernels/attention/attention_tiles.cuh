// SPDX-License-Identifier: Apache-2.0
// Tiles of 16-bit numbers in shared memory, and what flash attention does with fragments beside its
// products, forward and backward. The products are an engine's: attention_mma.cuh,
// attention_wgmma.cuh.
#pragma once

#include "exec/cuda/kernels/attention/attention.cuh"
#include "exec/cuda/kernels/ptx.cuh"

namespace rehearse::exec::cuda {

// kRows rows of kDim elements, in columns of 64: a column's rows are 128 bytes, 8 chunks of 16, one
// column behind the other. Chunk c of row r lies where c ^ (r % 8) would, so that the 8 rows of a
// matrix, read at once, lie in different banks; to wgmma it is the layout "128-byte swizzle".
// REQUIRES: `at` is a multiple of 1024 bytes, so that the exclusive or is one of address bits.
template <int kRows, int kDim>
struct Tile {
  static constexpr int kChunks = kDim / 8;
  static constexpr int kRowBytes = 128;
  static constexpr int kColumnBytes = kRows * kRowBytes;
  static constexpr int kBytes = kDim / 64 * kColumnBytes;
  static_assert(kDim % 64 == 0 && kColumnBytes % 1024 == 0);
  Shared at;
  __device__ __forceinline__ Shared chunk(int row, int c) const {
    return at + c / 8 * kColumnBytes + row * kRowBytes + (c % 8 ^ (row & 7)) * 16;
  }
};

// Starts copies of all rows; what lies beyond `valid` rows or `width` columns becomes zero.
template <int kThreads, int kRows, int kDim, class T>
__device__ __forceinline__ void start_tile(Tile<kRows, kDim> to, const T* from, std::int64_t stride,
                                           int valid, int width) {
  // 128 columns at a time where these divide the row, else 64. A thread keeps its chunk, and its
  // rows are equal modulo 8: one address, constant steps.
  constexpr int kColumns = kDim % 128 == 0 ? 2 : 1, kChunks = 8 * kColumns;
  constexpr int kStep = kThreads / kChunks;
  static_assert(kStep % 8 == 0 && kRows % kStep == 0);
  const int row = static_cast<int>(threadIdx.x) / kChunks;
  const int c = static_cast<int>(threadIdx.x) % kChunks;
  const Shared at = to.chunk(row, c);
  from += row * stride + c * 8;
#pragma unroll
  for (int r = 0; r < kRows; r += kStep) {
#pragma unroll
    for (int first = 0; first < kDim / 64; first += kColumns) {
      start_copy(at + first * to.kColumnBytes + r * to.kRowBytes, from + first * 64,
                 row + r < valid && first * 64 + c * 8 < width);
    }
    from += kStep * stride;
  }
}

// kM row tiles of 16 by kN columns, as C fragments.
template <int kM, int kN>
using Fragments = float[kM][kN / 8][4];

// Calls f(m, n, i) for every number of such fragments.
template <int kM, int kN, class F>
__device__ __forceinline__ void each_of(F f) {
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int n = 0; n < kN / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) f(m, n, i);
    }
  }
}

template <int kM, int kN>
__device__ __forceinline__ void clear(Fragments<kM, kN>& c) {
  each_of<kM, kN>([&](int m, int n, int i) { c[m][n][i] = 0; });
}

// The same as A fragments, rounded to T: [m][k] of the columns 16 k to 16 k + 15.
template <int kM, int kN>
struct Weights {
  std::uint32_t at[kM][kN / 16][4];
};
template <class T, int kM, int kN>
__device__ __forceinline__ Weights<kM, kN> packed(const Fragments<kM, kN>& p) {
  Weights<kM, kN> w;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int k = 0; k < kN / 16; ++k) {
      w.at[m][k][0] = pack<T>(p[m][2 * k][0], p[m][2 * k][1]);
      w.at[m][k][1] = pack<T>(p[m][2 * k][2], p[m][2 * k][3]);
      w.at[m][k][2] = pack<T>(p[m][2 * k + 1][0], p[m][2 * k + 1][1]);
      w.at[m][k][3] = pack<T>(p[m][2 * k + 1][2], p[m][2 * k + 1][3]);
    }
  }
  return w;
}

// Writes a warp's 16 kM rows of c, row r times factor[r of the thread], 16 bytes at a time by way
// of the rows [row, row + 16 kM) of `room`, which only this warp uses.
template <int kM, int kDim, int kRows, class T>
__device__ __forceinline__ void write_fragments(const Fragments<kM, kDim>& c,
                                                const float (&factor)[kM][2],
                                                Tile<kRows, kDim> room, int row, T* to,
                                                std::int64_t stride, int valid, int width) {
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
            pack<T>(c[m][n][2 * half] * factor[m][half], c[m][n][2 * half + 1] * factor[m][half]));
      }
    }
  }
  __syncwarp();
#pragma unroll 4
  for (int k = lane; k < 16 * kM * Tile<kRows, kDim>::kChunks; k += kWarp) {
    const int r = k / Tile<kRows, kDim>::kChunks, chunk = k % Tile<kRows, kDim>::kChunks;
    if (r < valid && chunk * 8 < width) {
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
                                                std::int64_t stride, int valid, int width) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int m = 0; m < kM; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = 16 * m + 8 * half + g;
      if (row >= valid) continue;
      float* at = to + row * stride + 2 * t;
      float2 sum[kDim / 8];  // all are read before one is written: one wait
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        sum[n] = first || 8 * n + 2 * t >= width ? make_float2(0, 0)
                                                 : *reinterpret_cast<const float2*>(at + 8 * n);
      }
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) {
        if (8 * n + 2 * t >= width) continue;
        sum[n].x = sum[n].x * before[m][half] + c[m][n][2 * half] * now[m][half];
        sum[n].y = sum[n].y * before[m][half] + c[m][n][2 * half + 1] * now[m][half];
        *reinterpret_cast<float2*>(at + 8 * n) = sum[n];
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
