// SPDX-License-Identifier: Apache-2.0
// Tensor-core instructions of sm_90a: products of a warpgroup (4 warps, the first a multiple of 4)
// that run beside it. Operands in shared memory are named by descriptors. Sources: PTX ISA 8,
// "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Operation"; the layouts are those of
// CUTLASS, include/cute/atom/mma_traits_sm90_gmma.hpp, make_gmma_desc.
// Warp w of the group holds rows 16 w to 16 w + 15, as fragments of mma.m16n8k16 (ptx.cuh): of A,
// and of C for every 8 columns.
#pragma once

#include "exec/cuda/kernels/ptx.cuh"

namespace rehearse::exec::cuda {

constexpr int kWarpgroup = 128;

// A matrix in the layout of a Tile (attention_tiles.cuh): address / 16 in bits 0 to 13, leading
// offset / 16 in 16 to 29, stride offset / 16 in 32 to 45, 1 in 62 to 63 for the 128-byte swizzle.
// The stride offset is that from 8 rows to the next 8. The leading offset is that from 64 columns
// to the next 64 where a row is a step of the sum (transposed), else it is not used (1).
using Matrix = std::uint64_t;
constexpr std::uint32_t kEightRows = 8 * 128;  // [B]
__device__ __forceinline__ Matrix matrix_at(Shared at, std::uint32_t leading) {
  return (at & 0x3FFFFU) >> 4 | static_cast<Matrix>(leading >> 4) << 16 |
         static_cast<Matrix>(kEightRows >> 4) << 32 | static_cast<Matrix>(1) << 62;
}
__device__ __forceinline__ Matrix further(Matrix matrix, int bytes) {
  return matrix + static_cast<Matrix>(bytes >> 4);
}

#ifndef REHEARSE_CUDA_EMULATION

// Between writes of registers that a product reads, or adds to, and the product.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// What this thread wrote to shared memory is seen by products that follow a barrier.
__device__ __forceinline__ void fence_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// The compiler moves no access to these registers across it.
template <int kTiles>
__device__ __forceinline__ void pin(float (&c)[kTiles][4]) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    asm volatile("" : "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])::"memory");
  }
}
template <int kTiles>
__device__ __forceinline__ void pin(std::uint32_t (&a)[kTiles][4]) {
#pragma unroll
  for (int k = 0; k < kTiles; ++k) {
    asm volatile("" : "+r"(a[k][0]), "+r"(a[k][1]), "+r"(a[k][2]), "+r"(a[k][3])::"memory");
  }
}

// clang-format off
#define REHEARSE_TILE(c, n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define REHEARSE_TILES(c, n) REHEARSE_TILE(c, n), REHEARSE_TILE(c, n + 1), REHEARSE_TILE(c, n + 2), REHEARSE_TILE(c, n + 3)
#define REHEARSE_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define REHEARSE_32 REHEARSE_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REHEARSE_64 REHEARSE_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
                                ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define REHEARSE_96 REHEARSE_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
                                ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
// Operands: the sums' registers, a and b; `p`: add to them. Then: a and b are not negated, and rows
// of both lie along the sum.
#define REHEARSE_ROWS_OF(types, n, sums, a_at, b_at, add_at, ...)                     \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " add_at ", 0;\n"                    \
               "wgmma.mma_async.sync.aligned.m64n" n "k16.f32" types " {" sums "}, " a_at \
               ", " b_at ", p, 1, 1, 0, 0;\n}" : __VA_ARGS__                          \
               : "l"(a), "l"(b), "r"(add ? 1 : 0) : "memory")
#define REHEARSE_ROWS(...)                                                              \
  if constexpr (std::is_same_v<T, Fp16>) { REHEARSE_ROWS_OF(".f16.f16", __VA_ARGS__); } \
  else { REHEARSE_ROWS_OF(".bf16.bf16", __VA_ARGS__); }
// a in registers; rows of b are steps of the sum.
#define REHEARSE_SUM_OF(types, n, sums, a_at, b_at, ...)                                    \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" n "k16.f32" types " {" sums "}, {" a_at \
               "}, " b_at ", 1, 1, 1, 1;" : __VA_ARGS__                                    \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b) : "memory")
#define REHEARSE_SUM(...)                                                               \
  if constexpr (std::is_same_v<T, Fp16>) { REHEARSE_SUM_OF(".f16.f16", __VA_ARGS__); }  \
  else { REHEARSE_SUM_OF(".bf16.bf16", __VA_ARGS__); }

// c(64, n) = a(64, 16) b(n, 16)^T, added to c where `add`; n = 32, 64, 128
template <class T>
__device__ __forceinline__ void wgmma_rows(float (&c)[4][4], Matrix a, Matrix b, bool add) {
  REHEARSE_ROWS("32", REHEARSE_16, "%16", "%17", "%18", REHEARSE_TILES(c, 0));
}
template <class T>
__device__ __forceinline__ void wgmma_rows(float (&c)[8][4], Matrix a, Matrix b, bool add) {
  REHEARSE_ROWS("64", REHEARSE_32, "%32", "%33", "%34", REHEARSE_TILES(c, 0), REHEARSE_TILES(c, 4));
}
template <class T>
__device__ __forceinline__ void wgmma_rows(float (&c)[16][4], Matrix a, Matrix b, bool add) {
  REHEARSE_ROWS("128", REHEARSE_64, "%64", "%65", "%66", REHEARSE_TILES(c, 0), REHEARSE_TILES(c, 4),
                REHEARSE_TILES(c, 8), REHEARSE_TILES(c, 12));
}
// c(64, n) += a(64, 16) b(16, n); n = 64, 128, 192
template <class T>
__device__ __forceinline__ void wgmma_sum(float (&c)[8][4], const std::uint32_t (&a)[4], Matrix b) {
  REHEARSE_SUM("64", REHEARSE_32, "%32, %33, %34, %35", "%36", REHEARSE_TILES(c, 0), REHEARSE_TILES(c, 4));
}
template <class T>
__device__ __forceinline__ void wgmma_sum(float (&c)[16][4], const std::uint32_t (&a)[4], Matrix b) {
  REHEARSE_SUM("128", REHEARSE_64, "%64, %65, %66, %67", "%68", REHEARSE_TILES(c, 0), REHEARSE_TILES(c, 4),
               REHEARSE_TILES(c, 8), REHEARSE_TILES(c, 12));
}
template <class T>
__device__ __forceinline__ void wgmma_sum(float (&c)[24][4], const std::uint32_t (&a)[4], Matrix b) {
  REHEARSE_SUM("192", REHEARSE_96, "%96, %97, %98, %99", "%100", REHEARSE_TILES(c, 0), REHEARSE_TILES(c, 4),
               REHEARSE_TILES(c, 8), REHEARSE_TILES(c, 12), REHEARSE_TILES(c, 16), REHEARSE_TILES(c, 20));
}
#undef REHEARSE_SUM
#undef REHEARSE_SUM_OF
#undef REHEARSE_ROWS
#undef REHEARSE_ROWS_OF
#undef REHEARSE_96
#undef REHEARSE_64
#undef REHEARSE_32
#undef REHEARSE_16
#undef REHEARSE_TILES
#undef REHEARSE_TILE
// clang-format on

#else

inline void wgmma_fence() {
  emulation::wgmma_fence();
}
inline void wgmma_commit() {
  emulation::wgmma_commit();
}
template <int kPending>
void wgmma_wait() {
  emulation::wgmma_wait(kPending);
}
inline void fence_proxy() {
  emulation::fence_proxy();
}
template <class T>
void pin(T&) {}
template <class T, int kTiles>
void wgmma_rows(float (&c)[kTiles][4], Matrix a, Matrix b, bool add) {
  emulation::wgmma(&c[0][0], 8 * kTiles,
                   {.fp16 = std::is_same_v<T, Fp16>, .a_matrix = a, .b_matrix = b, .add = add});
}
template <class T, int kTiles>
void wgmma_sum(float (&c)[kTiles][4], const std::uint32_t (&a)[4], Matrix b) {
  emulation::wgmma(&c[0][0], 8 * kTiles,
                   {.fp16 = std::is_same_v<T, Fp16>,
                    .a_registers = {a[0], a[1], a[2], a[3]},
                    .a_in_registers = true,
                    .b_matrix = b,
                    .b_transposed = true,
                    .add = true});
}

#endif

}  // namespace rehearse::exec::cuda
