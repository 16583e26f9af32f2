// SPDX-License-Identifier: Apache-2.0
// Instruction sets that have AVX-512's kernels, and products of bf16 of their own
// (products.inc). A table without a name: the compiler does not know the instructions.
#pragma once

#include "exec/cpu/kernels/table.h"

namespace rehearse::exec {

// By vdpbf16ps: the bits of AVX-512's, and of AVX2's, but that numbers below 2^-126 are taken as
// zeros. REQUIRES: a machine with AVX-512 BF16.
KernelTable avx512_bf16_kernels();
// By AMX's tiles: other bits, as exact. REQUIRES: ask_for_tiles().
KernelTable amx_kernels();

// Whether the machine has AMX with bf16 and the kernel lets this process use its tiles, which it
// asks for: Linux keeps their state for those alone who asked
// (Documentation/arch/x86/xstate.rst of the kernel: arch_prctl, ARCH_REQ_XCOMP_PERM).
bool ask_for_tiles();

}  // namespace rehearse::exec
