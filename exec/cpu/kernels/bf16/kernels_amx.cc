// SPDX-License-Identifier: Apache-2.0
// AVX-512's kernels, with products of bf16 by AMX's tiles.
#ifdef __AMX_BF16__
#define REHEARSE_ISA amx
#define REHEARSE_BASE avx512_kernels
#define REHEARSE_TABLE amx_kernels
#define REHEARSE_PRODUCTS "exec/cpu/kernels/bf16/tiles.inc"
#include "exec/cpu/kernels/bf16/products.inc"
#else  // a compiler that does not know them
#include "exec/cpu/kernels/bf16/tables.h"
namespace rehearse::exec {
KernelTable amx_kernels() {
  return {};
}
}  // namespace rehearse::exec
#endif
