// SPDX-License-Identifier: Apache-2.0
// The products of flash attention by wgmma: sm_90a. A warpgroup has 64 rows of its own; what it
// starts runs beside it until it waits.
#pragma once

#include "exec/cuda/kernels/attention/attention_tiles.cuh"
#include "exec/cuda/kernels/wgmma.cuh"

namespace rehearse::exec::cuda {

// The interface is that of MmaSync (attention_mma.cuh).
template <class T, int kWarpgroups>
struct Wgmma {
  using Element = T;
  static constexpr int kM = 1;
  static constexpr int kThreads = kWarpgroups * kWarpgroup;
  static constexpr int kRows = kWarpgroups * 64;
  static constexpr int kGroupRows = 64;
  static constexpr bool kAhead = true;
  __device__ __forceinline__ static int group_row() {
    if constexpr (kWarpgroups == 1) return 0;
    // By way of a shuffle: the compiler then knows that all lanes have the same.
    return __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / kWarpgroup, 0) * kGroupRows;
  }

  template <int kN, int kDim>
  __device__ __forceinline__ static void start_scores(Tile<kRows, kDim> a, Tile<kN, kDim> b,
                                                      Fragments<kM, kN>& c) {
    const Matrix left = matrix_at(a.at + group_row() * a.kRowBytes, 16);
    const Matrix right = matrix_at(b.at, 16);
    pin(c[0]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      wgmma_rows<T>(c[0], further(left, k / 4 * a.kColumnBytes + k % 4 * 32),
                    further(right, k / 4 * b.kColumnBytes + k % 4 * 32), k > 0);
    }
    wgmma_commit();
  }

  template <int kN, int kDim>
  __device__ __forceinline__ static void start_sum(Weights<kM, kN> p, Tile<kN, kDim> b,
                                                   Fragments<kM, kDim>& c) {
    const Matrix right = matrix_at(b.at, b.kColumnBytes);
    pin(p.at[0]);
    pin(c[0]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kN / 16; ++k)
      wgmma_sum<T>(c[0], p.at[0][k], further(right, k * 16 * b.kRowBytes));
    wgmma_commit();
  }

  template <int kPending, class... F>
  __device__ __forceinline__ static void wait(F&... done) {
    wgmma_wait<kPending>();
    (pin(done[0]), ...);
  }
  // ptxas moves a wait in front of arithmetic that it could follow, but not over a branch.
  template <class Work>
  __device__ __forceinline__ static void meanwhile(bool known_true, Work work) {
    if (known_true) work();
  }
  __device__ __forceinline__ static void publish() {
    fence_proxy();
  }
};

}  // namespace rehearse::exec::cuda
