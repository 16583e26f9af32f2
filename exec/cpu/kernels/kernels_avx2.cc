// SPDX-License-Identifier: Apache-2.0
#define REHEARSE_ISA avx2
#define REHEARSE_TABLE avx2_kernels
#define REHEARSE_LANES 8
#define REHEARSE_TILE_ROWS 6
#define REHEARSE_TILE_VECTORS 2
#include "exec/cpu/kernels/kernels.inc"
