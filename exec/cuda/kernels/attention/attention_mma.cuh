// SPDX-License-Identifier: Apache-2.0
// The products of flash attention by mma.sync: sm_80 and later. Each warp has rows of its own, and
// what is started has also ended.
#pragma once

#include "exec/cuda/kernels/attention/attention_tiles.cuh"

namespace rehearse::exec::cuda {

// A block of 4 warps, which hold 16 kRowTiles rows each. T: bf16 or fp16.
template <class T, int kRowTiles>
struct MmaSync {
  using Element = T;
  static constexpr int kM = kRowTiles;
  static constexpr int kThreads = 4 * kWarp;
  static constexpr int kRows = 4 * 16 * kM;
  static constexpr bool kAhead =
      false;  // is a product worth starting before the one that is needed?
  // The rows of one product, which all see a key or all skip it, and the first of this thread's.
  static constexpr int kGroupRows = 16 * kM;
  __device__ __forceinline__ static int group_row() {
    return static_cast<int>(threadIdx.x) / kWarp * kGroupRows;
  }

  // c(16 kM, kN) = rows [group_row, group_row + 16 kM) of a times the kN rows of b: scores
  template <int kN, int kDim>
  __device__ __forceinline__ static void start_scores(Tile<kRows, kDim> a, Tile<kN, kDim> b,
                                                      Fragments<kM, kN>& c) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, matrix = lane / 8, i = lane % 8;
    const Shared a_at = a.chunk(group_row() + matrix % 2 * 8 + i, matrix / 2);
    const Shared b_at = b.chunk(matrix / 2 * 8 + i, matrix % 2);
    clear<kM, kN>(c);
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {  // chunks 2 k and 2 k + 1
      const int turn = 32 * (k % 4);
      std::uint32_t left[kM][4];
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        load_matrices(left[m], (a_at ^ turn) + k / 4 * a.kColumnBytes + 16 * m * a.kRowBytes);
      }
#pragma unroll
      for (int n = 0; n < kN / 16; ++n) {
        std::uint32_t right[4];
        load_matrices(right, (b_at ^ turn) + k / 4 * b.kColumnBytes + 16 * n * b.kRowBytes);
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          mma<T>(c[m][2 * n], left[m], right[0], right[1]);
          mma<T>(c[m][2 * n + 1], left[m], right[2], right[3]);
        }
      }
    }
  }

  // c(16 kM, kDim) += p(16 kM, kN) times the kN rows of b
  template <int kN, int kDim>
  __device__ __forceinline__ static void start_sum(const Weights<kM, kN>& p, Tile<kN, kDim> b,
                                                   Fragments<kM, kDim>& c) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp, matrix = lane / 8, i = lane % 8;
    const Shared b_at = b.chunk(matrix % 2 * 8 + i, matrix / 2);
#pragma unroll
    for (int k = 0; k < kN / 16; ++k) {
#pragma unroll
      for (int n = 0; n < kDim / 16; ++n) {
        std::uint32_t right[4];
        load_transposed(right,
                        (b_at ^ 32 * (n % 4)) + n / 4 * b.kColumnBytes + 16 * k * b.kRowBytes);
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          mma<T>(c[m][2 * n], p.at[m][k], right[0], right[1]);
          mma<T>(c[m][2 * n + 1], p.at[m][k], right[2], right[3]);
        }
      }
    }
  }

  // Until at most kPending of the products that were started are under way; `done`: what is read
  // next.
  template <int kPending, class... F>
  __device__ __forceinline__ static void wait(F&...) {}
  // work(), while products run. REQUIRES: known_true, of which the compiler does not know it.
  template <class Work>
  __device__ __forceinline__ static void meanwhile(bool, Work work) {
    work();
  }
  // Products of others see what this thread wrote to shared memory, behind a barrier.
  __device__ __forceinline__ static void publish() {}
};

}  // namespace rehearse::exec::cuda
