// SPDX-License-Identifier: Apache-2.0
#define REHEARSE_ISA avx512
#define REHEARSE_TABLE avx512_kernels
#define REHEARSE_LANES 16
#define REHEARSE_TILE_ROWS 8
#define REHEARSE_TILE_VECTORS 3
#include "exec/cpu/kernels/kernels.inc"
