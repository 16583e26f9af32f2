// SPDX-License-Identifier: Apache-2.0
// The tensor-core and copy instructions of sm_80 that attention uses, one function each. Fragment
// layouts: PTX ISA 8, "Matrix Fragments for mma.m16n8k16" and "ldmatrix". With lane = 4 g + t:
//   A(16, 16): a[0] = A[g][2t, 2t+1], a[1] = A[g+8][same], a[2] = A[g][2t+8, 2t+9], a[3] =
//   A[g+8][same] B(16, 8):  b[0] = B[2t, 2t+1][g], b[1] = B[2t+8, 2t+9][g] C(16, 8):  c[0, 1] =
//   C[g][2t, 2t+1], c[2, 3] = C[g+8][2t, 2t+1]
// Hence two neighbouring C fragments, rounded and packed, are one A fragment.
#pragma once

#include "exec/cuda/kernels/device.cuh"

namespace rehearse::exec::cuda {

// A place in shared memory, as 32 bits: half the registers of a pointer.
using Shared = std::uint32_t;

#ifndef REHEARSE_CUDA_EMULATION

__device__ __forceinline__ Shared shared_address(const void* pointer) {
  return static_cast<Shared>(__cvta_generic_to_shared(pointer));
}
__device__ __forceinline__ void store_word(Shared to, std::uint32_t word) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}
__device__ __forceinline__ uint4 load_words(Shared from) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from)
               : "memory");
  return v;
}

// c += a b in fp32, a and b of T: bf16 or fp16
template <class T>
__device__ __forceinline__ void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                    std::uint32_t b1) {
  if constexpr (std::is_same_v<T, Fp16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// Four 8 x 8 matrices of 16-bit numbers. Lane 8 k + i gives the address of row i of matrix k (16
// bytes in shared memory); out[k] = elements (g, 2t) and (g, 2t + 1) of matrix k.
__device__ __forceinline__ void load_matrices(std::uint32_t (&out)[4], Shared row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(row)
               : "memory");
}
// The same, transposed: out[k] = elements (2t, g) and (2t + 1, g) of matrix k.
__device__ __forceinline__ void load_transposed(std::uint32_t (&out)[4], Shared row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(row)
               : "memory");
}

// Starts a copy of 16 bytes into shared memory; zeros where `valid` is false (`from` is not read).
__device__ __forceinline__ void start_copy(Shared to, const void* from, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
// The same of 4 bytes.
__device__ __forceinline__ void start_copy_word(Shared to, const float* from, bool valid) {
  const int bytes = valid ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
// Ends a group of copies; this thread's groups complete in order.
__device__ __forceinline__ void end_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most kPending of this thread's groups are under way. Others' need a __syncthreads.
template <int kPending>
__device__ __forceinline__ void wait_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

#else

inline Shared shared_address(const void* pointer) {
  return emulation::shared_address(pointer);
}
inline void store_word(Shared to, std::uint32_t word) {
  emulation::store_word(to, word);
}
inline uint4 load_words(Shared from) {
  return emulation::load_words(from);
}
template <class T>
void mma(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  emulation::mma(c, a, b0, b1, std::is_same_v<T, Fp16>);
}
inline void load_matrices(std::uint32_t (&out)[4], Shared row) {
  emulation::load_matrices(out, row, false);
}
inline void load_transposed(std::uint32_t (&out)[4], Shared row) {
  emulation::load_matrices(out, row, true);
}
inline void start_copy(Shared to, const void* from, bool valid) {
  emulation::start_copy(to, from, 16, valid);
}
inline void start_copy_word(Shared to, const float* from, bool valid) {
  emulation::start_copy(to, from, 4, valid);
}
inline void end_group() {
  emulation::end_group();
}
template <int kPending>
void wait_groups() {
  emulation::wait_groups(kPending);
}

#endif

}  // namespace rehearse::exec::cuda
