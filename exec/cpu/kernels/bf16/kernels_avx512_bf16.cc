// SPDX-License-Identifier: Apache-2.0
// AVX-512's kernels, with products of bf16 by the instruction for them.
#ifdef __AVX512BF16__
#define REHEARSE_ISA avx512_bf16
#define REHEARSE_BASE avx512_kernels
#define REHEARSE_TABLE avx512_bf16_kernels
#define REHEARSE_PRODUCTS "exec/cpu/kernels/bf16/pairs.inc"
#include "exec/cpu/kernels/bf16/products.inc"
#else  // a compiler that does not know them
#include "exec/cpu/kernels/bf16/tables.h"
namespace rehearse::exec {
KernelTable avx512_bf16_kernels() {
  return {};
}
}  // namespace rehearse::exec
#endif
